// Floats that lie in memory as bfloat16, the upper halves of their bits, or as they are.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "csrc/base/simd_f32.h"

namespace fewstep {

typedef std::uint16_t Halves __attribute__((vector_size(LANES * sizeof(std::uint16_t))));

static inline float widened(std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); }
static inline float widened(float value) { return value; }

static inline Floats load(const std::uint16_t* at) {
    Halves halves;
    std::memcpy(&halves, at, sizeof halves);
    const Ints bits = __builtin_convertvector(halves, Ints) << 16;
    return std::bit_cast<Floats>(bits);
}

// To the nearest, of two equally near ones the even one; a NaN stays one.
static inline std::uint16_t narrowed(float value) {
    if (value != value) return 0x7fc0;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void store_as(float* at, Floats values) { store(at, values); }
static inline void store_as(float* at, float value) { *at = value; }
static inline void store_as(std::uint16_t* at, float value) { *at = narrowed(value); }
static inline void store_as(std::uint16_t* at, Floats values) {
    const Ints bits = std::bit_cast<Ints>(values), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const Halves halves = __builtin_convertvector(values == values ? rounded : Ints{} + 0x7fc0, Halves);
    std::memcpy(at, &halves, sizeof halves);
}

}  // namespace fewstep
