// SIMD vectors of float32, as wide as the registers of the level that is compiled. For source files: headers that the bindings
// include must not depend on the level, because bindings are compiled once for all of them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace fewstep {

#if defined(__AVX512F__)
inline constexpr int F32_LANES = 16, SIMD_REGISTERS = 32;
#elif defined(__AVX__)
inline constexpr int F32_LANES = 8, SIMD_REGISTERS = 16;
#elif defined(__aarch64__)
inline constexpr int F32_LANES = 4, SIMD_REGISTERS = 32;
#else
inline constexpr int F32_LANES = 4, SIMD_REGISTERS = 16;
#endif

typedef float F32Vector __attribute__((vector_size(F32_LANES * sizeof(float))));
typedef std::int32_t I32Vector __attribute__((vector_size(F32_LANES * sizeof(std::int32_t))));
typedef std::uint32_t U32Vector __attribute__((vector_size(F32_LANES * sizeof(std::uint32_t))));

static inline F32Vector load(const float* address) {
    F32Vector values;
    std::memcpy(&values, address, sizeof values);
    return values;
}

static inline void store(float* address, F32Vector values) { std::memcpy(address, &values, sizeof values); }

static inline F32Vector broadcast(float value) { return value - F32Vector{}; }  // (0 + value would turn -0 into 0)

// Keep a value in a register: compilers prefer to reload operands that are used several times. Passed and returned by value,
// because an array element that is bound to a reference is stored to memory too.
template <typename Values>
static inline Values in_register(Values values) {
#if defined(__x86_64__)
    __asm__("" : "+v"(values));
#elif defined(__aarch64__)
    __asm__("" : "+w"(values));
#endif
    return values;
}

// The same address, but the compiler does not know it: it reads operands from there again, instead of keeping more of them in
// registers than there are.
template <typename Value>
static inline const Value* unrelated(const Value* address) {
    __asm__("" : "+r"(address));
    return address;
}

// one * other + third, rounded once if the machine has a fused instruction. If the choice were left to the compiler, some loops
// would be fused and others not (GCC on AMD Zen 3 does not fuse loop-carried sums), and the result of a row would depend on the
// size of its block.
static inline float multiply_add(float one, float other, float third) {
#if defined(__FMA__) || defined(__aarch64__)
    return std::fma(one, other, third);
#else
    return one * other + third;
#endif
}

static inline F32Vector multiply_add(F32Vector one, F32Vector other, F32Vector third) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(one, other, third);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(one, other, third);
#elif defined(__aarch64__)
    return vfmaq_f32(third, one, other);
#else
    return one * other + third;
#endif
}

// Return whether any lane of `one` is greater than the same lane of `other`.
static inline bool any_greater(F32Vector one, F32Vector other) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(one, other, _CMP_GT_OQ) != 0;
#elif defined(__FMA__)
    return _mm256_movemask_ps(_mm256_cmp_ps(one, other, _CMP_GT_OQ)) != 0;
#elif defined(__SSE2__) && !defined(__AVX__)
    return _mm_movemask_ps(_mm_cmpgt_ps(one, other)) != 0;
#else
    const I32Vector above = one > other;
    bool any = false;
    for (int lane = 0; lane < F32_LANES; ++lane) any |= above[lane] != 0;
    return any;
#endif
}

static inline F32Vector vector_max(F32Vector one, F32Vector other) { return one > other ? one : other; }

// Exchange lanes whose indices differ in the bit WIDTH.
template <int WIDTH, int... LANE>
static inline F32Vector swap_lanes(F32Vector values, std::integer_sequence<int, LANE...>) {
    return __builtin_shufflevector(values, values, (LANE ^ WIDTH)...);
}

template <int WIDTH = F32_LANES / 2>
static inline float horizontal_sum(F32Vector values) {
    if constexpr (WIDTH == 0)
        return values[0];
    else
        return horizontal_sum<WIDTH / 2>(values + swap_lanes<WIDTH>(values, std::make_integer_sequence<int, F32_LANES>()));
}

// Lane l is the sum of lanes l and l ^ WIDTH, of `one` if l does not have the bit WIDTH, else of `other`.
template <int WIDTH, int... LANE>
static inline F32Vector pairwise_sums(F32Vector one, F32Vector other, std::integer_sequence<int, LANE...>) {
    return __builtin_shufflevector(one, other, ((LANE & WIDTH) ? F32_LANES + LANE : LANE)...) +
           __builtin_shufflevector(one, other, ((LANE & WIDTH) ? F32_LANES + (LANE ^ WIDTH) : LANE ^ WIDTH)...);
}

// Lane l is horizontal_sum(values[l]); `values` is overwritten.
template <int WIDTH = F32_LANES / 2>
static inline F32Vector horizontal_sums(F32Vector* values) {
    if constexpr (WIDTH == 0)
        return values[0];
    else {
#pragma GCC unroll 8
        for (int lane = 0; lane < WIDTH; ++lane)
            values[lane] = pairwise_sums<WIDTH>(values[lane], values[lane + WIDTH], std::make_integer_sequence<int, F32_LANES>());
        return horizontal_sums<WIDTH / 2>(values);
    }
}

// Transpose a square of vectors in log2 steps that exchange blocks of 1, 2, 4, ... lanes across the diagonal.
template <int WIDTH, int... LANE>
static inline void transpose_blocks(F32Vector* rows, std::integer_sequence<int, LANE...>) {
    for (int row = 0; row < F32_LANES; ++row) {
        if (row & WIDTH) continue;
        const F32Vector above = rows[row], below = rows[row + WIDTH];
        rows[row] = __builtin_shufflevector(above, below, ((LANE & WIDTH) ? F32_LANES + LANE - WIDTH : LANE)...);
        rows[row + WIDTH] = __builtin_shufflevector(above, below, ((LANE & WIDTH) ? F32_LANES + LANE : LANE + WIDTH)...);
    }
}

template <int WIDTH = 1>
static inline void transpose(F32Vector* rows) {
    if constexpr (WIDTH < F32_LANES) {
        transpose_blocks<WIDTH>(rows, std::make_integer_sequence<int, F32_LANES>());
        transpose<2 * WIDTH>(rows);
    }
}

// sum_i one_i other_i
static inline float dot(const float* one, const float* other, std::size_t count) {
    F32Vector sums{};
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES)
        sums = multiply_add(load(one + position), load(other + position), sums);
    float sum = horizontal_sum(sums);
    for (; position < count; ++position) sum = multiply_add(one[position], other[position], sum);
    return sum;
}

template <int WIDTH = F32_LANES / 2>
static inline float horizontal_max(F32Vector values) {
    if constexpr (WIDTH == 0)
        return values[0];
    else
        return horizontal_max<WIDTH / 2>(
            vector_max(values, swap_lanes<WIDTH>(values, std::make_integer_sequence<int, F32_LANES>())));
}

// e^x for x <= 0, with an error of at most 2 units in the last place; 0 below -87 (and for minus infinity). x = n ln 2 + r with |r|
// <= ln 2 / 2; e^r is the minimax polynomial of the Cephes library.
static inline F32Vector vector_exp(F32Vector x) {
    constexpr float LOWEST = -87.0F, ROUND = 12582912.0F;  // 1.5 * 2^23
    const F32Vector inside = x < LOWEST ? broadcast(LOWEST) : x;
    const F32Vector n = multiply_add(inside, broadcast(1.44269504088896341F), broadcast(ROUND)) - ROUND;
    const F32Vector r = multiply_add(n, broadcast(2.12194440e-4F), multiply_add(n, broadcast(-0.693359375F), inside));
    F32Vector p = broadcast(1.9875691500e-4F);
    p = multiply_add(p, r, broadcast(1.3981999507e-3F));
    p = multiply_add(p, r, broadcast(8.3334519073e-3F));
    p = multiply_add(p, r, broadcast(4.1665795894e-2F));
    p = multiply_add(p, r, broadcast(1.6666665459e-1F));
    p = multiply_add(p, r, broadcast(5.0000001201e-1F));
    p = multiply_add(p, r * r, r) + 1.0F;
    const I32Vector bits = (__builtin_convertvector(n, I32Vector) + 127) << 23;
    F32Vector scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return x < LOWEST ? F32Vector{} : p * scale;
}

// GELU, x P(Z < x) for a standard normal Z, to within 3e-7 (|x| + 1), as max(0, x) - |x| / 2 erfc(|x| / sqrt(2)) with formula
// 7.1.26 of Abramowitz and Stegun for erfc.
static inline F32Vector vector_gelu(F32Vector x) {
    const F32Vector size = x < F32Vector{} ? -x : x, z = size * 0.70710678118654752F;
    const F32Vector t = 1.0F / multiply_add(z, broadcast(0.3275911F), broadcast(1.0F));
    F32Vector p = broadcast(1.061405429F);
    p = multiply_add(p, t, broadcast(-1.453152027F));
    p = multiply_add(p, t, broadcast(1.421413741F));
    p = multiply_add(p, t, broadcast(-0.284496736F));
    p = multiply_add(p, t, broadcast(0.254829592F));
    return vector_max(x, F32Vector{}) - size * 0.5F * p * t * vector_exp(-z * z);
}

// Swish, x / (1 + e^-x) (Ramachandran et al. 2017), with e^-|x| alone, which does not overflow.
static inline F32Vector vector_swish(F32Vector x) {
    const F32Vector e = vector_exp(x < F32Vector{} ? x : -x);
    return x * (x < F32Vector{} ? e : broadcast(1.0F)) / (1.0F + e);
}

}  // namespace fewstep
