// Floating-point numbers with an extended exponent, for products and sums of probabilities without logarithms.
#pragma once

#include <cmath>
#include <cstdint>

namespace fewstep {

// value * 2^(256 exponent) with value in [2^-128, 2^128): a positive number with at least the precision of a double.
struct ScaledFloat {
    double value = 1;
    std::int32_t exponent = 0;
};

inline constexpr double SCALED_MIN = 0x1p-128, SCALED_LIMIT = 0x1p128, SCALE_DOWN = 0x1p-256, SCALE_UP = 0x1p256;
inline constexpr std::int32_t ZERO_EXPONENT = -(1 << 30);  // exponent of an empty sum
inline constexpr double SCALE_LOG = 256 * 0.693147180559945309417;

inline ScaledFloat operator*(const ScaledFloat& one, const ScaledFloat& other) {
    ScaledFloat product{one.value * other.value, one.exponent + other.exponent};
    if (product.value < SCALED_MIN) {
        product.value *= SCALE_UP;
        --product.exponent;
    } else if (product.value >= SCALED_LIMIT) {
        product.value *= SCALE_DOWN;
        ++product.exponent;
    }
    return product;
}

// (value, exponent) += (more, more_exponent)
inline void add_scaled(double& value, std::int32_t& exponent, double more, std::int32_t more_exponent) {
    if (more_exponent == exponent) {
        value += more;
    } else if (more_exponent == exponent - 1) {
        value += more * SCALE_DOWN;
    } else if (more_exponent > exponent) {
        value = more + (more_exponent == exponent + 1 ? value * SCALE_DOWN : 0);
        exponent = more_exponent;
    }  // else the term is below the precision of the sum
    if (value >= SCALED_LIMIT) {
        value *= SCALE_DOWN;
        ++exponent;
    }
}

// exp(x) for |x| <= 1e9.
inline ScaledFloat scaled_exp(double x) {
    const double exponent = std::nearbyint(x / SCALE_LOG);
    return ScaledFloat{std::exp(x - exponent * SCALE_LOG), static_cast<std::int32_t>(exponent)} * ScaledFloat{};
}

inline double scaled_log(double value, std::int32_t exponent) { return std::log(value) + exponent * SCALE_LOG; }

}  // namespace fewstep
