// Checks of numbers from Python: each throws std::invalid_argument that names the argument, what is expected and what was given.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

#include "bindings/arrays.h"

namespace fewstep {

// The shortest usual text of a number.
template <typename Number>
std::string text_of(Number value) {
    if constexpr (std::is_integral_v<Number>) return std::to_string(value);
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
    return text;
}

template <typename Number>
std::string got(Number value) {
    return ", got " + text_of(value);
}

template <typename Number>
void require_range(const char* name, Number value, Number min, Number max) {
    if (value >= min && value <= max) return;
    require(false, std::string(name) + ": expected " + text_of(min) + " to " + text_of(max) + got(value));
}

template <typename Number>
void require_at_least(const char* name, Number value, Number min) {
    if (value >= min) return;
    require(false, std::string(name) + ": expected at least " + text_of(min) + got(value));
}

inline void require_finite(const char* name, double value) {
    if (std::isfinite(value)) return;
    require(false, std::string(name) + ": expected a finite number" + got(value));
}

// More threads than any machine has processors: each takes memory for its stack and its scratch.
inline void require_threads(int threads) {
    require_at_least("threads", threads, 1);
    require_range("threads", threads, 1, 1024);
}

// Refuse an array without values whose sizes are no less large: its rows would be passed through one by one.
template <typename Array>
void require_values(const char* name, const Array& array) {
    constexpr std::size_t MAX_EMPTY = std::size_t{1} << 16;
    for (std::size_t axis = 0; array.size() == 0 && axis < array.ndim(); ++axis)
        require(array.shape(axis) <= MAX_EMPTY, std::string(name) + ": expected at most " + std::to_string(MAX_EMPTY) +
                                                    " in each dimension of an array without values" + got(array.shape(axis)));
}

}  // namespace fewstep
