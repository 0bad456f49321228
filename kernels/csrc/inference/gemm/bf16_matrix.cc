#include "csrc/inference/gemm/bf16_matrix.h"

#include <algorithm>
#include <bit>

#include "csrc/base/bfloat16.h"
#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

// Convert x [count] to bfloat16 pairs, padded with 0.
void to_bfloat16_pairs(const float* x, std::size_t count, Bf16* to) {
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES) {
#if defined(__AVX512BF16__)
        const auto bf16_values = _mm512_cvtneps_pbh(load(x + position));
        std::memcpy(to + position, &bf16_values, sizeof bf16_values);
#else
        store_rounded(to + position, load(x + position));
#endif
    }
    for (; position < count; ++position) to[position] = to_bfloat16(x[position]);
    if (count % 2) to[count] = 0;
}

// sums + even products + odd products of bfloat16 pairs; an integer holds the even element in its lower half, the odd one in its
// upper half.
#if defined(__AVX512BF16__)
inline F32Vector add_bf16_products(F32Vector sums, I32Vector values, I32Vector weights) {
    return _mm512_dpbf16_ps(sums, std::bit_cast<__m512bh>(values), std::bit_cast<__m512bh>(weights));
}
#else
inline F32Vector even(I32Vector pairs) { return std::bit_cast<F32Vector>(pairs << 16); }
inline F32Vector odd(I32Vector pairs) { return std::bit_cast<F32Vector>(pairs & ~0xffff); }

inline F32Vector add_bf16_products(F32Vector sums, I32Vector values, I32Vector weights) {
    return multiply_add(even(values), even(weights), multiply_add(odd(values), odd(weights), sums));
}
#endif

struct Bf16Format {
    using Value = Bf16;
    using Group = std::uint32_t;
    using Sums = F32Vector;
    using Dequantize = AddBias;
    static constexpr int STEP = 1;
    static constexpr bool HOLD = true;
    static constexpr std::size_t MIN_WORK = 1 << 17;

    static I32Vector weights(const Group* at) {
        I32Vector pairs;
        std::memcpy(&pairs, at, sizeof pairs);
        return pairs;
    }
    static I32Vector values(const Bf16* at) { return broadcast_group(at); }
    static F32Vector add_products(F32Vector sums, I32Vector values, I32Vector weights) {
        return add_bf16_products(sums, values, weights);
    }
};

}  // namespace

Bf16Matrix::Bf16Matrix(const PackedMatrix& matrix) : outputs_(matrix.outputs()), inputs_(matrix.inputs()) {
    const std::size_t width = (outputs_ + F32_LANES - 1) / F32_LANES * F32_LANES, pairs = (inputs_ + 1) / 2;
    panels_.resize(width * pairs);
    bias_.assign(matrix.bias(), matrix.bias() + width);
    for (std::size_t first = 0; first < width; first += PackedMatrix::panel_width()) {
        const std::size_t columns = std::min(PackedMatrix::panel_width(), width - first);
        const float* from = matrix.weights() + first * inputs_;
        std::uint32_t* to = panels_.data() + first * pairs;
        for (std::size_t pair = 0; pair < pairs; ++pair)
            for (std::size_t column = 0; column < columns; column += F32_LANES) {
                const float* at = from + 2 * pair * columns + column;
                const F32Vector other = 2 * pair + 1 < inputs_ ? load(at + columns) : F32Vector{};
                const I32Vector both = to_bfloat16(load(at)) | to_bfloat16(other) << 16;
                std::memcpy(to + pair * columns + column, &both, sizeof both);
            }
    }
}

void Bf16Matrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                          std::vector<Bf16>& bf16_values, ThreadTeam& team) const {
    const std::size_t pairs = (inputs_ + 1) / 2;
    if (bf16_values.size() < rows * 2 * pairs) bf16_values.resize(rows * 2 * pairs);
    for (std::size_t row = 0; row < rows; ++row)
        to_bfloat16_pairs(x + row * x_stride, inputs_, bf16_values.data() + row * 2 * pairs);
    const PackedGemm<Bf16Format> product{bf16_values.data(), 2 * pairs, pairs,   panels_.data(), {bias_.data()}, y,
                                         y_stride,           outputs_,  epilogue};
    product.multiply(rows, (outputs_ + PackedMatrix::panel_width() - 1) / PackedMatrix::panel_width(), team);
}

}  // namespace fewstep
