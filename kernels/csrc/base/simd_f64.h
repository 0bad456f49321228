// SIMD vectors of eight float64, as compiler vector extensions; the compiler splits them on machines with narrower registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace fewstep {

constexpr std::size_t F64_LANES = 8;

typedef double F64Vector __attribute__((vector_size(F64_LANES * sizeof(double)), aligned(alignof(double)), may_alias));
typedef std::int64_t I64Vector
    __attribute__((vector_size(F64_LANES * sizeof(std::int64_t)), aligned(alignof(std::int64_t)), may_alias));

// Round `count` up, or `index` down, to a multiple of the number of lanes.
constexpr std::size_t round_up(std::size_t count) { return (count + F64_LANES - 1) / F64_LANES * F64_LANES; }
constexpr std::size_t round_down(std::size_t index) { return index / F64_LANES * F64_LANES; }

inline const F64Vector& vector_at(const double* from) { return *reinterpret_cast<const F64Vector*>(from); }
inline F64Vector& vector_at(double* from) { return *reinterpret_cast<F64Vector*>(from); }

// to = condition ? one : other in each lane; `condition` is the result of a vector comparison.
[[gnu::always_inline]] inline void blend(F64Vector& to, const I64Vector& condition, const F64Vector& one, const F64Vector& other) {
    to = reinterpret_cast<const F64Vector&>(static_cast<const I64Vector&>(
        (reinterpret_cast<const I64Vector&>(one) & condition) | (reinterpret_cast<const I64Vector&>(other) & ~condition)));
}

[[gnu::always_inline]] inline double horizontal_sum(const F64Vector& x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

[[gnu::always_inline]] inline double horizontal_max(const F64Vector& x) {
    double found = x[0];
    for (std::size_t lane = 1; lane < F64_LANES; ++lane) found = x[lane] > found ? x[lane] : found;
    return found;
}

// The smallest argument of `exp_in_place` that is not flushed: smaller ones, minus infinity included, give 0.
constexpr double MIN_EXPONENT = -707.0;

// x = exp(x) for x <= 709, with a relative error of at most 4e-16. With the integer n nearest to x / ln 2 and r = x - n ln 2, so
// that |r| < 0.35, exp(x) = 2^n exp(r); n is added to the exponent bits.
[[gnu::always_inline]] inline void exp_in_place(F64Vector& x) {
    constexpr double ROUNDER = 0x1.8p52;  // adding it moves the nearest integer into the lowest bits
    const I64Vector kept = x >= MIN_EXPONENT;
    blend(x, kept, x, F64Vector{});
    const F64Vector shifted = x * 0x1.71547652b82fep0 + ROUNDER;
    const F64Vector n = shifted - ROUNDER;
    const F64Vector r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
    constexpr double INVERSE_FACTORIALS[] = {
        1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
    F64Vector power = F64Vector{} + 1.0 / 6227020800;
    for (const double coefficient : INVERSE_FACTORIALS) power = power * r + coefficient;
    const I64Vector bits = (reinterpret_cast<const I64Vector&>(power) + (reinterpret_cast<const I64Vector&>(shifted) << 52)) & kept;
    x = reinterpret_cast<const F64Vector&>(bits);
}

}  // namespace fewstep
