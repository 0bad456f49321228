#include "csrc/ops/align/diagonal.h"

#include <limits>

namespace fewstep {

namespace {

// The source positions split at s = j n / m: [1, floor(s)] are below the diagonal, the others above. Away from it, the terms of
// each side form a geometric series.
struct Split {
    std::uint32_t floor, above;  // number of terms
    double ratio;

    // With exchanged lengths j may exceed the target; `above` then wraps around as an unsigned 32-bit number, which makes the
    // series practically infinite.
    Split(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension)
        : floor(static_cast<std::uint32_t>(static_cast<double>(j) * n / m)), above(n - floor), ratio(std::exp(-tension / n)) {}
};

double geometric(double first, double ratio, std::uint32_t terms) {
    return first * (1.0 - std::pow(ratio, static_cast<double>(terms))) / (1.0 - ratio);
}

// sum_k (a + k step) g ratio^k over k < terms
double arithmetico_geometric(double a, double g, double ratio, double step, std::uint32_t terms) {
    const double g_end = g * std::pow(ratio, static_cast<double>(terms));
    const double a_last = step * (terms - 1) + a;
    const double ratio_minus_1 = ratio - 1;
    return (a_last * g_end - a * g) / ratio_minus_1 - step * (g_end - g * ratio) / (ratio_minus_1 * ratio_minus_1);
}

}  // namespace

double diagonal_partition(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension) {
    const Split split(j, m, n, tension);
    double above = 0, below = 0;
    if (split.above) above = geometric(std::exp(diagonal_feature(j, split.floor + 1, m, n) * tension), split.ratio, split.above);
    if (split.floor) below = geometric(std::exp(diagonal_feature(j, split.floor, m, n) * tension), split.ratio, split.floor);
    return below + above;
}

double diagonal_gradient(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension, bool compatible) {
    const double partition = compatible ? diagonal_partition(j, n, m, tension) : diagonal_partition(j, m, n, tension);
    const Split split(j, m, n, tension);
    const auto side = [&](std::uint32_t first, std::uint32_t terms) {
        const double feature = diagonal_feature(j, first, m, n);
        return terms ? arithmetico_geometric(feature, std::exp(feature * tension), split.ratio, -1.0 / n, terms) : 0.0;
    };
    return (side(split.floor + 1, split.above) + side(split.floor, split.floor)) / partition;
}

double digamma(double x) {
    if (!(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
    double result = 0;
    for (; x < 7; ++x) result -= 1 / x;
    x -= 1.0 / 2.0;
    const double u = 1.0 / x, u2 = u * u, u4 = u2 * u2;
    return result + (std::log(x) + (1. / 24.) * u2 - (7.0 / 960.0) * u4 + (31.0 / 8064.0) * u4 * u2 - (127.0 / 30720.0) * u4 * u4);
}

}  // namespace fewstep
