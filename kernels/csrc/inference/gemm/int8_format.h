// The products of int8 values and weights on each level, for packed_gemm.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/int8_matrix.h"
#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

// A row x is t (u - z) with bytes u; a group is four bytes. `ByteProducts` defines for a level `STEP` (groups that are multiplied
// together), `ROW_ZEROS` (whether z is chosen for each row and u has 7 bits; otherwise z = `ZERO`, and u - z has 8 bits with its
// sign), `values`, `weights` and `add_products`.
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD) || !defined(__SSSE3__)
struct ByteProducts {
    static constexpr int STEP = 1;
    static constexpr bool ROW_ZEROS = false;
#if defined(__ARM_FEATURE_DOTPROD)
    static constexpr std::int32_t ZERO = 0;
#else
    static constexpr std::int32_t ZERO = 128;  // the instruction takes unsigned values
#endif

    static I32Vector values(const std::uint8_t* at) { return broadcast_group(at); }
    static I32Vector weights(const std::uint32_t* at) {
        I32Vector groups;
        std::memcpy(&groups, at, sizeof groups);
        return groups;
    }
    static I32Vector add_products(I32Vector sums, I32Vector values, I32Vector weights) {
#if defined(__AVX512VNNI__)
        return std::bit_cast<I32Vector>(
            _mm512_dpbusd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__ARM_FEATURE_DOTPROD)
        return std::bit_cast<I32Vector>(
            vdotq_s32(std::bit_cast<int32x4_t>(sums), std::bit_cast<int8x16_t>(values), std::bit_cast<int8x16_t>(weights)));
#else
        for (int position = 0; position < 4; ++position, values >>= 8, weights >>= 8)
            sums += (values & 0xff) * (weights << 24 >> 24);
        return sums;
#endif
    }
};
#else
// `maddubs` multiplies bytes u >= 0 by signed ones and adds two products in 16 bits, with saturation. Two such sums are added
// before they are widened, which takes half of the time. Nothing saturates or overflows: u is at most 127, and matrices limit their
// weights (see MAX_WEIGHT_SUM).
struct ByteProducts {
    static constexpr int STEP = 2;
    static constexpr bool ROW_ZEROS = true;
    static constexpr std::int32_t ZERO = 0;
#if defined(__AVX512BW__)
    using Bytes = __m512i;
    static Bytes maddubs(Bytes values, Bytes weights) { return _mm512_maddubs_epi16(values, weights); }
    static Bytes add(Bytes one, Bytes other) { return _mm512_add_epi16(one, other); }
    static Bytes widen(Bytes sums) { return _mm512_madd_epi16(sums, _mm512_set1_epi16(1)); }
#elif defined(__AVX2__)
    using Bytes = __m256i;
    static Bytes maddubs(Bytes values, Bytes weights) { return _mm256_maddubs_epi16(values, weights); }
    static Bytes add(Bytes one, Bytes other) { return _mm256_add_epi16(one, other); }
    static Bytes widen(Bytes sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
#else
    using Bytes = __m128i;
    static Bytes maddubs(Bytes values, Bytes weights) { return _mm_maddubs_epi16(values, weights); }
    static Bytes add(Bytes one, Bytes other) { return _mm_add_epi16(one, other); }
    static Bytes widen(Bytes sums) { return _mm_madd_epi16(sums, _mm_set1_epi16(1)); }
#endif
    static_assert(sizeof(Bytes) == sizeof(I32Vector), "expected a level whose vectors of bytes are as wide as those of floats");

    struct Step {
        Bytes first, second;
    };
    static Bytes load_bytes(const std::uint32_t* at) {
        Bytes bytes;
        std::memcpy(&bytes, at, sizeof bytes);
        return bytes;
    }
    static Step values(const std::uint8_t* at) {
        return {std::bit_cast<Bytes>(broadcast_group(at)), std::bit_cast<Bytes>(broadcast_group(at + sizeof(std::uint32_t)))};
    }
    static Step weights(const std::uint32_t* at) { return {load_bytes(at), load_bytes(at + F32_LANES)}; }
    static I32Vector add_products(I32Vector sums, const Step& values, const Step& weights) {
        const Bytes both = add(maddubs(values.first, weights.first), maddubs(values.second, weights.second));
        return sums + std::bit_cast<I32Vector>(widen(both));
    }
};
#endif

// The greatest u of a row with its own z, and the most that the positive weights (and the negative ones) of the four products in a
// sum of 16 bits may add up to before they are rounded. Rounding adds 1/2 at most to u, to z and to each weight.
inline constexpr std::int32_t VALUE_RANGE = 126, MAX_WEIGHT_SUM = 256;
static_assert((VALUE_RANGE + 1) * (MAX_WEIGHT_SUM + 2) <= INT16_MAX);

struct Int8Format : ByteProducts {
    using Value = std::uint8_t;
    using Group = std::uint32_t;
    using Sums = I32Vector;
    static constexpr bool HOLD = STEP == 1;
    static constexpr std::size_t MIN_WORK = 1 << 17;

    struct Dequantize {
        const float *bias, *scales;
        const std::int32_t* weight_sums;
        const QuantizedRow* rows;

        struct Outputs {
            F32Vector bias, scales;
            I32Vector weight_sums;
            const QuantizedRow* rows;

            F32Vector operator()(I32Vector sums, std::size_t row) const {
                const std::int32_t zero = ROW_ZEROS ? rows[row].zero : ZERO;
                return multiply_add(__builtin_convertvector(sums - weight_sums * zero, F32Vector) * scales,
                                    broadcast(rows[row].scale), bias);
            }
        };
        Outputs outputs(std::size_t column) const {
            I32Vector sums;
            std::memcpy(&sums, weight_sums + column, sizeof sums);
            return {load(bias + column), load(scales + column), sums, rows};
        }
    };
};

}  // namespace fewstep
