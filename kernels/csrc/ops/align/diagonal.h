// The diagonal prior of fast_align (Dyer, Chahuneau and Smith 2013):
//     p(a_j = i) = (1 - p0) exp(tension * h(j, i)) / Z(j),   h(j, i) = -| i/n - j/m |,   1 <= i <= n (source), 1 <= j <= m (target)
// Sums of geometric series are computed in closed form, in double precision.
#pragma once

#include <cmath>
#include <cstdint>

namespace fewstep {

inline double diagonal_feature(std::uint32_t j, std::uint32_t i, std::uint32_t m, std::uint32_t n) {
    return -std::fabs(static_cast<double>(i) / n - static_cast<double>(j) / m);
}

// Z(j) = sum_i exp(tension * h(j, i)); tension > 0.
double diagonal_partition(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension);

// d log Z(j) / d tension = E[h]. With `compatible` the divisor is Z of exchanged lengths, as in the original program (see
// docs/methods/word-alignment.md).
double diagonal_gradient(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension, bool compatible);

// The derivative of log Gamma for x > 0: shifted to x >= 7, then an asymptotic series. Minus infinity for 0, NaN for x < 0.
double digamma(double x);

}  // namespace fewstep
