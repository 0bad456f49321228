#include "csrc/half_matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "csrc/block_outputs.h"
#include "csrc/vectors.h"

namespace fewstep {

namespace {

constexpr int VECTORS = 3, ROWS = REGISTERS == 32 ? 8 : 4;  // as PackedMatrix

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
    typedef std::int16_t Shorts __attribute__((vector_size(LANES * sizeof(std::int16_t))));
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) {
        const Shorts halves = __builtin_convertvector(rounded(load(x + place)) >> 16, Shorts);
        std::memcpy(to + place, &halves, sizeof halves);
    }
    for (; place < count; ++place) to[place] = half_of(x[place]);
    if (count % 2) to[count] = 0;
}

// sums + even products + odd products, of pairs of bfloat16: the even one in the lower half of each integer, the odd one in the upper.
#if defined(__AVX512BF16__)
inline Floats add_products(Floats sums, Ints values, Ints weights) {
    return _mm512_dpbf16_ps(sums, std::bit_cast<__m512bh>(values), std::bit_cast<__m512bh>(weights));
}
#else
inline Floats even(Ints pairs) { return std::bit_cast<Floats>(pairs << 16); }
inline Floats odd(Ints pairs) { return std::bit_cast<Floats>(pairs & ~0xffff); }

inline Floats add_products(Floats sums, Ints values, Ints weights) {
    return fused(even(values), even(weights), fused(odd(values), odd(weights), sums));
}
#endif

struct Block {
    const Half* x;
    std::size_t x_stride, pairs;
    const std::uint32_t* panel;
    const float* bias;
    float* y;
    std::size_t y_stride, columns;
    Then then;
};

template <int R, int V>
void multiply_block(const Block& block) {
    Floats sums[R][V] = {};
    const std::uint32_t* weights = block.panel;
    for (std::size_t pair = 0; pair < block.pairs; ++pair, weights += V * LANES) {
        Ints weight[V];
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            std::memcpy(&weight[vector], weights + vector * LANES, sizeof weight[vector]);
            keep_in_register(weight[vector]);
        }
#pragma GCC unroll 8
        for (int row = 0; row < R; ++row) {
            std::int32_t both;
            std::memcpy(&both, block.x + static_cast<std::size_t>(row) * block.x_stride + 2 * pair, sizeof both);
            const Ints value = both - Ints{};
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[row][vector] = add_products(sums[row][vector], value, weight[vector]);
        }
    }
    for (int row = 0; row < R; ++row)
        for (int vector = 0; vector < V; ++vector) {
            const std::size_t column = static_cast<std::size_t>(vector) * LANES;
            write(block.y + static_cast<std::size_t>(row) * block.y_stride + column, sums[row][vector] + load(block.bias + column),
                  block.then, block.columns - column);
        }
}

using Multiply = void (*)(const Block&);

template <int V, int... R>
constexpr std::array<Multiply, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<R + 1, V>...};
}

constexpr std::array<std::array<Multiply, ROWS>, VECTORS> MULTIPLY = {
    by_rows<1>(std::make_integer_sequence<int, ROWS>()),
    by_rows<2>(std::make_integer_sequence<int, ROWS>()),
    by_rows<3>(std::make_integer_sequence<int, ROWS>()),
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
                          std::vector<Half>& halves) const {
    const std::size_t pairs = (inputs_ + 1) / 2, blocks = (rows + ROWS - 1) / ROWS, panel = PackedMatrix::panel();
    if (halves.size() < rows * 2 * pairs) halves.resize(rows * 2 * pairs);
    for (std::size_t row = 0; row < rows; ++row) halve(x + row * x_stride, inputs_, halves.data() + row * 2 * pairs);
    for (std::size_t first = 0; first < outputs_; first += panel) {
        const std::size_t columns = outputs_ - first, vectors = std::min<std::size_t>(VECTORS, (columns + LANES - 1) / LANES) - 1;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            MULTIPLY[vectors][count - 1]({halves.data() + row * 2 * pairs, 2 * pairs, pairs, panels_.data() + first * pairs,
                                          bias_.data() + first, y + row * y_stride + first, y_stride, columns, then});
        }
    }
}

void product(const PackedMatrix& whole, const HalfMatrix& half, const float* x, std::size_t rows, float* y, Then then,
             std::vector<Half>& halves) {
    if (half.empty()) return whole.multiply(x, whole.inputs(), rows, y, whole.outputs(), then);
    half.multiply(x, whole.inputs(), rows, y, whole.outputs(), then, halves);
}

}  // namespace fewstep
