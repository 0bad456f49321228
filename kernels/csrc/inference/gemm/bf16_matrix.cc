#include "csrc/inference/gemm/bf16_matrix.h"

#include <algorithm>
#include <bit>

#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

// Bits of floats, rounded to those of bfloat16 in their upper half.
Ints rounded(Floats values) {
    Ints bits;
    std::memcpy(&bits, &values, sizeof bits);
    return bits + 0x7fff + ((bits >> 16) & 1);
}

Half half_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<Half>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// x [count] in pairs, the last one filled up with 0.
void halve(const float* x, std::size_t count, Half* to) {
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) {
#if defined(__AVX512BF16__)
        const auto halves = _mm512_cvtneps_pbh(load(x + place));
#else
        typedef std::int16_t Shorts __attribute__((vector_size(LANES * sizeof(std::int16_t))));
        const Shorts halves = __builtin_convertvector(rounded(load(x + place)) >> 16, Shorts);
#endif
        std::memcpy(to + place, &halves, sizeof halves);
    }
    for (; place < count; ++place) to[place] = half_of(x[place]);
    if (count % 2) to[count] = 0;
}

// sums + even products + odd products, of pairs of bfloat16: the even one in the lower half of each integer, the odd one in the upper.
#if defined(__AVX512BF16__)
inline Floats add_half_products(Floats sums, Ints values, Ints weights) {
    return _mm512_dpbf16_ps(sums, std::bit_cast<__m512bh>(values), std::bit_cast<__m512bh>(weights));
}
#else
inline Floats even(Ints pairs) { return std::bit_cast<Floats>(pairs << 16); }
inline Floats odd(Ints pairs) { return std::bit_cast<Floats>(pairs & ~0xffff); }

inline Floats add_half_products(Floats sums, Ints values, Ints weights) {
    return fused(even(values), even(weights), fused(odd(values), odd(weights), sums));
}
#endif

struct HalfNumbers {
    using Value = Half;
    using Group = std::uint32_t;
    using Sums = Floats;
    using Ends = BiasEnds;
    static constexpr std::size_t LEAST_WORK = 1 << 17;

    static Ints weights(const Group* at) {
        Ints pairs;
        std::memcpy(&pairs, at, sizeof pairs);
        return pairs;
    }
    static Ints values(const Half* at) { return group_for_all(at); }
    static Floats add_products(Floats sums, Ints values, Ints weights) { return add_half_products(sums, values, weights); }
};

}  // namespace

HalfMatrix::HalfMatrix(const PackedMatrix& matrix) : outputs_(matrix.outputs()), inputs_(matrix.inputs()) {
    const std::size_t width = (outputs_ + LANES - 1) / LANES * LANES, pairs = (inputs_ + 1) / 2;
    panels_.resize(width * pairs);
    bias_.assign(matrix.bias(), matrix.bias() + width);
    for (std::size_t first = 0; first < width; first += PackedMatrix::panel()) {
        const std::size_t columns = std::min(PackedMatrix::panel(), width - first);
        const float* from = matrix.weights() + first * inputs_;
        std::uint32_t* to = panels_.data() + first * pairs;
        for (std::size_t pair = 0; pair < pairs; ++pair)
            for (std::size_t column = 0; column < columns; column += LANES) {
                const float* at = from + 2 * pair * columns + column;
                const Floats other = 2 * pair + 1 < inputs_ ? load(at + columns) : Floats{};
                const Ints both = ((rounded(load(at)) >> 16) & 0xffff) | (rounded(other) & ~0xffff);
                std::memcpy(to + pair * columns + column, &both, sizeof both);
            }
    }
}

void HalfMatrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Then then,
                          std::vector<Half>& halves, Team& team) const {
    const std::size_t pairs = (inputs_ + 1) / 2;
    if (halves.size() < rows * 2 * pairs) halves.resize(rows * 2 * pairs);
    for (std::size_t row = 0; row < rows; ++row) halve(x + row * x_stride, inputs_, halves.data() + row * 2 * pairs);
    const PanelProduct<HalfNumbers> product{halves.data(), 2 * pairs, pairs, panels_.data(), {bias_.data()}, y, y_stride, outputs_, then};
    product.multiply(rows, (outputs_ + PackedMatrix::panel() - 1) / PackedMatrix::panel(), team);
}

}  // namespace fewstep
