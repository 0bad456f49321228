// Eight doubles at a time, as the compiler's own vectors: it breaks them up for machines of narrower registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace fewstep {

constexpr std::size_t LANES = 8;

typedef double Lanes __attribute__((vector_size(LANES * sizeof(double)), aligned(alignof(double)), may_alias));
typedef std::int64_t Words __attribute__((vector_size(LANES * sizeof(std::int64_t)), aligned(alignof(std::int64_t)), may_alias));

// `count` rounded up, or `index` rounded down, to a multiple of the lanes.
constexpr std::size_t up(std::size_t count) { return (count + LANES - 1) / LANES * LANES; }
constexpr std::size_t down(std::size_t index) { return index / LANES * LANES; }

inline const Lanes& lanes(const double* from) { return *reinterpret_cast<const Lanes*>(from); }
inline Lanes& lanes(double* from) { return *reinterpret_cast<Lanes*>(from); }

// to = condition ? one : other, lane by lane; `condition` is a comparison's result.
[[gnu::always_inline]] inline void choose(Lanes& to, const Words& condition, const Lanes& one, const Lanes& other) {
    to = reinterpret_cast<const Lanes&>(static_cast<const Words&>((reinterpret_cast<const Words&>(one) & condition) |
                                                                  (reinterpret_cast<const Words&>(other) & ~condition)));
}

[[gnu::always_inline]] inline double sum(const Lanes& x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

[[gnu::always_inline]] inline double highest(const Lanes& x) {
    double found = x[0];
    for (std::size_t lane = 1; lane < LANES; ++lane) found = x[lane] > found ? x[lane] : found;
    return found;
}

// The least exponent of `exponentials`; lower ones, minus infinity too, give 0.
constexpr double LEAST_EXPONENT = -707.0;

// x = exp(x) for x of at most 709, to within 4e-16 of its value. With n the integer next to x / ln 2 and r = x - n ln 2, so that
// |r| < 0.35, exp(x) = 2^n exp(r), and 2^n goes right into the exponent's bits.
[[gnu::always_inline]] inline void exponentials(Lanes& x) {
    constexpr double ROUNDER = 0x1.8p52;  // adding it leaves the nearest integer in the lowest bits
    const Words kept = x >= LEAST_EXPONENT;
    choose(x, kept, x, Lanes{});
    const Lanes shifted = x * 0x1.71547652b82fep0 + ROUNDER;
    const Lanes n = shifted - ROUNDER;
    const Lanes r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
    constexpr double INVERSE_FACTORIALS[] = {
        1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
    Lanes power = Lanes{} + 1.0 / 6227020800;
    for (const double coefficient : INVERSE_FACTORIALS) power = power * r + coefficient;
    const Words bits = (reinterpret_cast<const Words&>(power) + (reinterpret_cast<const Words&>(shifted) << 52)) & kept;
    x = reinterpret_cast<const Lanes&>(bits);
}

}  // namespace fewstep
