#include "csrc/network/byte_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "csrc/network/pair_products.h"

namespace fewstep {

namespace {

typedef std::int8_t Bytes __attribute__((vector_size(2 * LANES * sizeof(std::int8_t))));
typedef std::int16_t Shorts __attribute__((vector_size(2 * LANES * sizeof(std::int16_t))));

struct ByteNumbers {
    using Value = std::int16_t;
    using Pair = std::uint16_t;
    using Sums = Ints;

    static Ints weights(const Pair* at) {
        Bytes bytes;
        std::memcpy(&bytes, at, sizeof bytes);
        return std::bit_cast<Ints>(__builtin_convertvector(bytes, Shorts));
    }

    // sums + even products + odd products, of pairs of 16 bits.
    static Ints add_products(Ints sums, Ints values, Ints weights) {
#if defined(__AVX512VNNI__)
        return std::bit_cast<Ints>(_mm512_dpwssd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX512BW__)
        return sums + std::bit_cast<Ints>(_mm512_madd_epi16(std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
        return sums + std::bit_cast<Ints>(_mm256_madd_epi16(std::bit_cast<__m256i>(values), std::bit_cast<__m256i>(weights)));
#else
        return sums + ((values << 16) >> 16) * ((weights << 16) >> 16) + (values >> 16) * (weights >> 16);
#endif
    }

    struct Ends {
        const float *bias, *scales, *rows;

        Ends from(std::size_t row, std::size_t column) const { return {bias + column, scales + column, rows + row}; }
        Floats operator()(Ints sums, std::size_t row, std::size_t column) const {
            return fused(__builtin_convertvector(sums, Floats) * load(scales + column), all(rows[row]), load(bias + column));
        }
    };
};

// To the nearest integer, of two equally near ones the even one; |x| < 2^22.
float rounded(float x) { return (x + 12582912.0F) - 12582912.0F; }
Floats rounded(Floats x) { return (x + 12582912.0F) - 12582912.0F; }

// The largest |x|.
float largest(const float* x, std::size_t count) {
    Floats top{};
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) top = larger(top, larger(load(x + place), -load(x + place)));
    float found = highest_of(top);
    for (; place < count; ++place) found = std::max(found, std::abs(x[place]));
    return found;
}

// x [count] as t r into `to`, filled up with 0 to pairs; returns t.
float narrowed(const float* x, std::size_t count, float levels, std::int16_t* to) {
    typedef std::int16_t Half __attribute__((vector_size(LANES * sizeof(std::int16_t))));
    const float top = largest(x, count);
    if (!(top > 0.0F)) {
        std::fill_n(to, count + count % 2, std::int16_t{0});
        return 0.0F;
    }
    const float factor = levels / top;
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) {
        const Half values = __builtin_convertvector(__builtin_convertvector(rounded(load(x + place) * factor), Ints), Half);
        std::memcpy(to + place, &values, sizeof values);
    }
    for (; place < count; ++place) to[place] = static_cast<std::int16_t>(rounded(x[place] * factor));
    if (count % 2) to[count] = 0;
    return top / levels;
}

}  // namespace

ByteMatrix::ByteMatrix(const PackedMatrix& matrix) : outputs_(matrix.outputs()), inputs_(matrix.inputs()) {
    const std::size_t width = (outputs_ + LANES - 1) / LANES * LANES, pairs = (inputs_ + 1) / 2;
    panels_.resize(width * pairs);
    bias_.assign(matrix.bias(), matrix.bias() + width);
    scales_.assign(width, 0.0F);
    for (std::size_t first = 0; first < width; first += PackedMatrix::panel()) {
        const std::size_t columns = std::min(PackedMatrix::panel(), width - first);
        const float* from = matrix.weights() + first * inputs_;
        for (std::size_t column = 0; column < columns; ++column) {
            float& scale = scales_[first + column];
            for (std::size_t input = 0; input < inputs_; ++input) scale = std::max(scale, std::abs(from[input * columns + column]) / 127.0F);
            const auto byte = [&](std::size_t input) {
                if (input >= inputs_ || scale == 0.0F) return std::uint8_t{0};
                return static_cast<std::uint8_t>(static_cast<std::int8_t>(rounded(from[input * columns + column] / scale)));
            };
            for (std::size_t pair = 0; pair < pairs; ++pair) {
                const std::uint8_t both[2] = {byte(2 * pair), byte(2 * pair + 1)};
                std::memcpy(&panels_[(first * pairs) + pair * columns + column], both, sizeof both);
            }
        }
    }
}

void ByteMatrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Then then,
                          std::vector<std::int16_t>& values) const {
    multiply_first(x, x_stride, rows, y, y_stride, (outputs_ + PackedMatrix::panel() - 1) / PackedMatrix::panel(), then, values);
}

void ByteMatrix::multiply_first(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, std::size_t panels,
                                Then then, std::vector<std::int16_t>& values) const {
    const std::size_t pairs = (inputs_ + 1) / 2;
    const auto levels = static_cast<float>(std::min<std::size_t>(32767, 0x7fffffff / (127 * std::max<std::size_t>(1, inputs_))));
    if (values.size() < rows * 2 * pairs) values.resize(rows * 2 * pairs);
    std::vector<float> scales(rows);
    for (std::size_t row = 0; row < rows; ++row) scales[row] = narrowed(x + row * x_stride, inputs_, levels, values.data() + row * 2 * pairs);
    const PairProduct<ByteNumbers> product{values.data(), pairs, panels_.data(), {bias_.data(), scales_.data(), scales.data()}, y, y_stride, outputs_, then};
    product.multiply(rows, panels);
}

}  // namespace fewstep
