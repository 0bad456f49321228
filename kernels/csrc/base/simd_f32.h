// Vectors as wide as this build's registers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace fewstep {

#if defined(__AVX512F__)
inline constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX__)
inline constexpr int LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
inline constexpr int LANES = 4, REGISTERS = 32;
#else
inline constexpr int LANES = 4, REGISTERS = 16;
#endif

typedef float Floats __attribute__((vector_size(LANES * sizeof(float))));
typedef std::int32_t Ints __attribute__((vector_size(LANES * sizeof(std::int32_t))));

static inline Floats load(const float* at) {
    Floats values;
    std::memcpy(&values, at, sizeof values);
    return values;
}

static inline void store(float* at, Floats values) { std::memcpy(at, &values, sizeof values); }

static inline Floats all(float value) { return value - Floats{}; }  // (0 + value would turn -0 into 0)

// Compilers would rather read what is used several times from memory each time. Taken and given by value: part of an array that is named
// by reference is stored to memory, too.
template <typename Values>
static inline Values in_register(Values values) {
#if defined(__x86_64__)
    __asm__("" : "+v"(values));
#elif defined(__aarch64__)
    __asm__("" : "+w"(values));
#endif
    return values;
}

// one * other + third, rounded once where the machine has an instruction for it. Left to a compiler, some loops would have it and
// others not (GCC for AMD's Zen 3: not where sums wait for each other), and a row's result would depend on how many share its block.
static inline float fused(float one, float other, float third) {
#if defined(__FMA__) || defined(__aarch64__)
    return std::fma(one, other, third);
#else
    return one * other + third;
#endif
}

static inline Floats fused(Floats one, Floats other, Floats third) {
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

// Is a lane of one above that of the other?
static inline bool any_above(Floats one, Floats other) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(one, other, _CMP_GT_OQ) != 0;
#elif defined(__FMA__)
    return _mm256_movemask_ps(_mm256_cmp_ps(one, other, _CMP_GT_OQ)) != 0;
#else
    const Ints above = one > other;
    bool any = false;
    for (int lane = 0; lane < LANES; ++lane) any |= above[lane] != 0;
    return any;
#endif
}

static inline Floats larger(Floats one, Floats other) { return one > other ? one : other; }

// Each lane's value from the lane whose number differs in the bit WIDTH.
template <int WIDTH, int... LANE>
static inline Floats swapped(Floats values, std::integer_sequence<int, LANE...>) {
    return __builtin_shufflevector(values, values, (LANE ^ WIDTH)...);
}

template <int WIDTH = LANES / 2>
static inline float sum_of(Floats values) {
    if constexpr (WIDTH == 0) return values[0];
    else return sum_of<WIDTH / 2>(values + swapped<WIDTH>(values, std::make_integer_sequence<int, LANES>()));
}

// For each lane l the sum of one's lanes l and l ^ WIDTH, or where l has the bit WIDTH of other's.
template <int WIDTH, int... LANE>
static inline Floats sums_of_two(Floats one, Floats other, std::integer_sequence<int, LANE...>) {
    return __builtin_shufflevector(one, other, ((LANE & WIDTH) ? LANES + LANE : LANE)...) +
           __builtin_shufflevector(one, other, ((LANE & WIDTH) ? LANES + (LANE ^ WIDTH) : LANE ^ WIDTH)...);
}

// In lane l what sum_of says of values[l]; these are overwritten.
template <int WIDTH = LANES / 2>
static inline Floats sums_of(Floats* values) {
    if constexpr (WIDTH == 0) return values[0];
    else {
#pragma GCC unroll 8
        for (int lane = 0; lane < WIDTH; ++lane)
            values[lane] = sums_of_two<WIDTH>(values[lane], values[lane + WIDTH], std::make_integer_sequence<int, LANES>());
        return sums_of<WIDTH / 2>(values);
    }
}

// Rows and columns of a square of vectors change places: in steps that swap blocks of 1, 2, 4, ... lanes across the diagonal.
template <int WIDTH, int... LANE>
static inline void turn_blocks(Floats* rows, std::integer_sequence<int, LANE...>) {
    for (int row = 0; row < LANES; ++row) {
        if (row & WIDTH) continue;
        const Floats above = rows[row], below = rows[row + WIDTH];
        rows[row] = __builtin_shufflevector(above, below, ((LANE & WIDTH) ? LANES + LANE - WIDTH : LANE)...);
        rows[row + WIDTH] = __builtin_shufflevector(above, below, ((LANE & WIDTH) ? LANES + LANE : LANE + WIDTH)...);
    }
}

template <int WIDTH = 1>
static inline void turn(Floats* rows) {
    if constexpr (WIDTH < LANES) {
        turn_blocks<WIDTH>(rows, std::make_integer_sequence<int, LANES>());
        turn<2 * WIDTH>(rows);
    }
}

// sum_i one_i other_i
static inline float dot(const float* one, const float* other, std::size_t count) {
    Floats sums{};
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) sums = fused(load(one + place), load(other + place), sums);
    float sum = sum_of(sums);
    for (; place < count; ++place) sum = fused(one[place], other[place], sum);
    return sum;
}

template <int WIDTH = LANES / 2>
static inline float highest_of(Floats values) {
    if constexpr (WIDTH == 0) return values[0];
    else return highest_of<WIDTH / 2>(larger(values, swapped<WIDTH>(values, std::make_integer_sequence<int, LANES>())));
}

// e^x for x <= 0, to within 2 units in the last place; 0 below -87 (and for minus infinity). x = n ln 2 + r, |r| <= ln 2 / 2, and
// e^r by the minimax polynomial of the Cephes library.
static inline Floats exp_of(Floats x) {
    constexpr float LOWEST = -87.0F, ROUND = 12582912.0F;  // 1.5 * 2^23
    const Floats inside = x < LOWEST ? all(LOWEST) : x;
    const Floats n = fused(inside, all(1.44269504088896341F), all(ROUND)) - ROUND;
    const Floats r = fused(n, all(2.12194440e-4F), fused(n, all(-0.693359375F), inside));
    Floats p = all(1.9875691500e-4F);
    p = fused(p, r, all(1.3981999507e-3F));
    p = fused(p, r, all(8.3334519073e-3F));
    p = fused(p, r, all(4.1665795894e-2F));
    p = fused(p, r, all(1.6666665459e-1F));
    p = fused(p, r, all(5.0000001201e-1F));
    p = fused(p, r * r, r) + 1.0F;
    const Ints bits = (__builtin_convertvector(n, Ints) + 127) << 23;
    Floats scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return x < LOWEST ? Floats{} : p * scale;
}

// x P(Z < x) for a standard normal Z, to within 3e-7 (|x| + 1): max(0, x) - |x| / 2 erfc(|x| / sqrt(2)), with the complementary error
// function by formula 7.1.26 of Abramowitz and Stegun.
static inline Floats gelu_of(Floats x) {
    const Floats size = x < Floats{} ? -x : x, z = size * 0.70710678118654752F;
    const Floats t = 1.0F / fused(z, all(0.3275911F), all(1.0F));
    Floats p = all(1.061405429F);
    p = fused(p, t, all(-1.453152027F));
    p = fused(p, t, all(1.421413741F));
    p = fused(p, t, all(-0.284496736F));
    p = fused(p, t, all(0.254829592F));
    return larger(x, Floats{}) - size * 0.5F * p * t * exp_of(-z * z);
}

}  // namespace fewstep
