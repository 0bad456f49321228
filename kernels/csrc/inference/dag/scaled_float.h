// Probabilities of any size, that are added and multiplied without logarithms.
#pragma once

#include <cmath>
#include <cstdint>

namespace fewstep {

// value * 2^(256 exponent), with value in [2^-128, 2^128): a positive number, at least as precise as a double.
struct Mass {
    double value = 1;
    std::int32_t exponent = 0;
};

inline constexpr double MASS_LEAST = 0x1p-128, MASS_LIMIT = 0x1p128, MASS_DOWN = 0x1p-256, MASS_UP = 0x1p256;
inline constexpr std::int32_t NO_MASS = -(1 << 30);  // the exponent of what is nothing yet
inline constexpr double MASS_LN_BASE = 256 * 0.693147180559945309417;

inline Mass operator*(const Mass& one, const Mass& other) {
    Mass product{one.value * other.value, one.exponent + other.exponent};
    if (product.value < MASS_LEAST) {
        product.value *= MASS_UP;
        --product.exponent;
    } else if (product.value >= MASS_LIMIT) {
        product.value *= MASS_DOWN;
        ++product.exponent;
    }
    return product;
}

// Adds to the sum (value, exponent).
inline void add_mass(double& value, std::int32_t& exponent, double more, std::int32_t more_exponent) {
    if (more_exponent == exponent) {
        value += more;
    } else if (more_exponent == exponent - 1) {
        value += more * MASS_DOWN;
    } else if (more_exponent > exponent) {
        value = more + (more_exponent == exponent + 1 ? value * MASS_DOWN : 0);
        exponent = more_exponent;
    }  // else it is less than the last digit
    if (value >= MASS_LIMIT) {
        value *= MASS_DOWN;
        ++exponent;
    }
}

// exp(x), for |x| up to 1e9.
inline Mass mass_of_log(double x) {
    const double exponent = std::nearbyint(x / MASS_LN_BASE);
    return Mass{std::exp(x - exponent * MASS_LN_BASE), static_cast<std::int32_t>(exponent)} * Mass{};
}

inline double log_mass(double value, std::int32_t exponent) { return std::log(value) + exponent * MASS_LN_BASE; }

}  // namespace fewstep
