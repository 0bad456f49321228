// Conversion between float32 and bfloat16, whose bits are the upper half of those of a float32.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "csrc/base/simd_f32.h"

namespace fewstep {

typedef std::uint16_t U16Vector __attribute__((vector_size(F32_LANES * sizeof(std::uint16_t))));

static inline float to_float(std::uint16_t bits16) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits16) << 16); }
static inline float to_float(float value) { return value; }

static inline F32Vector load(const std::uint16_t* address) {
    U16Vector upper;
    std::memcpy(&upper, address, sizeof upper);
    const I32Vector bits = __builtin_convertvector(upper, I32Vector) << 16;
    return std::bit_cast<F32Vector>(bits);
}

// Round to nearest, ties to even; NaN stays NaN.
static inline std::uint16_t to_bfloat16(float value) {
    if (value != value) return 0x7fc0;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void store_rounded(float* address, F32Vector values) { store(address, values); }
static inline void store_rounded(float* address, float value) { *address = value; }
static inline void store_rounded(std::uint16_t* address, float value) { *address = to_bfloat16(value); }
// The same for a vector; the upper half of each element is 0. The bits are unsigned: those of some NaN exceed an int when rounded.
static inline I32Vector to_bfloat16(F32Vector values) {
    const U32Vector bits = std::bit_cast<U32Vector>(values), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return values == values ? std::bit_cast<I32Vector>(rounded) : I32Vector{} + 0x7fc0;
}
static inline void store_rounded(std::uint16_t* address, F32Vector values) {
    const U16Vector upper = __builtin_convertvector(to_bfloat16(values), U16Vector);
    std::memcpy(address, &upper, sizeof upper);
}

}  // namespace fewstep
