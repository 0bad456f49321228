#include "csrc/inference/gemm/int8_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

#if defined(__AVX512VNNI__)
constexpr std::int32_t ADDED = 128;  // to values, which the instruction takes without a sign
#else
typedef std::int8_t Bytes __attribute__((vector_size(2 * LANES * sizeof(std::int8_t))));
typedef std::int16_t Shorts __attribute__((vector_size(2 * LANES * sizeof(std::int16_t))));
constexpr std::int32_t ADDED = 0;
#endif

struct ByteNumbers {
    using Value = ByteMatrix::Value;
    using Group = ByteMatrix::Group;
    using Sums = Ints;
    static constexpr std::size_t LEAST_WORK = 1 << 17;

    static Ints weights(const Group* at) {
#if defined(__AVX512VNNI__)
        Ints groups;
        std::memcpy(&groups, at, sizeof groups);
        return groups;
#else
        Bytes bytes;
        std::memcpy(&bytes, at, sizeof bytes);
        return std::bit_cast<Ints>(__builtin_convertvector(bytes, Shorts));
#endif
    }

    static Ints values(const Value* at) { return group_for_all(at); }

    // sums + the products of a group.
    static Ints add_products(Ints sums, Ints values, Ints weights) {
#if defined(__AVX512VNNI__)
        return std::bit_cast<Ints>(_mm512_dpbusd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX512BW__)
        return sums + std::bit_cast<Ints>(_mm512_madd_epi16(std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
        return sums + std::bit_cast<Ints>(_mm256_madd_epi16(std::bit_cast<__m256i>(values), std::bit_cast<__m256i>(weights)));
#else
        return sums + ((values << 16) >> 16) * ((weights << 16) >> 16) + (values >> 16) * (weights >> 16);
#endif
    }

    struct Ends {
        const float *bias, *scales;
        const std::int32_t* offsets;
        const float* rows;

        Floats operator()(Ints sums, std::size_t row, std::size_t column) const {
            Ints offset;
            std::memcpy(&offset, offsets + column, sizeof offset);
            return fused(__builtin_convertvector(sums - offset, Floats) * load(scales + column), all(rows[row]), load(bias + column));
        }
    };
};

constexpr std::size_t SIZE = PanelProduct<ByteNumbers>::SIZE;

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

// x [count] as t r into `to`, filled up with 0 to whole groups; returns t.
float narrowed(const float* x, std::size_t count, ByteMatrix::Value* to) {
    typedef ByteMatrix::Value Narrow __attribute__((vector_size(LANES * sizeof(ByteMatrix::Value))));
    const float top = largest(x, count), factor = top > 0.0F ? 127.0F / top : 0.0F;
    std::size_t place = 0;
    for (; place + LANES <= count; place += LANES) {
        const Narrow values = __builtin_convertvector(__builtin_convertvector(rounded(load(x + place) * factor), Ints) + ADDED, Narrow);
        std::memcpy(to + place, &values, sizeof values);
    }
    for (; place < count; ++place) to[place] = static_cast<ByteMatrix::Value>(static_cast<std::int32_t>(rounded(x[place] * factor)) + ADDED);
    for (; place % SIZE != 0; ++place) to[place] = ADDED;
    return top / 127.0F;
}

}  // namespace

ByteRows::ByteRows(const PackedMatrix& matrix)
    : inputs_(matrix.inputs()), bias_(matrix.bias(), matrix.bias() + matrix.outputs()), scales_(matrix.outputs()), offsets_(matrix.outputs()) {
    const std::size_t outputs = matrix.outputs(), width = (outputs + LANES - 1) / LANES * LANES, groups = (inputs_ + SIZE - 1) / SIZE;
    rows_.resize(outputs * groups);
    for (std::size_t output = 0; output < outputs; ++output) {
        const std::size_t first = output / PackedMatrix::panel() * PackedMatrix::panel(), columns = std::min(PackedMatrix::panel(), width - first);
        const float* from = matrix.weights() + first * inputs_ + (output - first);
        float& scale = scales_[output];
        for (std::size_t input = 0; input < inputs_; ++input) scale = std::max(scale, std::abs(from[input * columns]) / 127.0F);
        const auto byte = [&](std::size_t input) {
            if (input >= inputs_ || scale == 0.0F) return std::int8_t{0};
            return static_cast<std::int8_t>(rounded(from[input * columns] / scale));
        };
        for (std::size_t group = 0; group < groups; ++group) {
            std::int8_t together[SIZE];
            for (std::size_t place = 0; place < SIZE; ++place) {
                together[place] = byte(SIZE * group + place);
                offsets_[output] += ADDED * together[place];
            }
            std::memcpy(&rows_[output * groups + group], together, sizeof together);
        }
    }
}

ByteMatrix::ByteMatrix(const PackedMatrix& matrix) : outputs_(matrix.outputs()), inputs_(matrix.inputs()) {
    typedef Group Groups __attribute__((vector_size(LANES * sizeof(Group))));
    const std::size_t width = (outputs_ + LANES - 1) / LANES * LANES, groups = (inputs_ + SIZE - 1) / SIZE;
    panels_.resize(width * groups), scales_.resize(width), offsets_.resize(width);
    bias_.assign(matrix.bias(), matrix.bias() + width);
    for (std::size_t output = 0; output < width; output += LANES) {
        const std::size_t first = output / PackedMatrix::panel() * PackedMatrix::panel(), columns = std::min(PackedMatrix::panel(), width - first);
        const float* from = matrix.weights() + first * inputs_ + (output - first);
        Group* to = panels_.data() + first * groups + (output - first);
        Floats top{};
        for (std::size_t input = 0; input < inputs_; ++input) top = larger(top, larger(load(from + input * columns), -load(from + input * columns)));
        const Floats scale = top / 127.0F, divisor = scale > 0.0F ? scale : all(1.0F);
        Ints sum{};
        for (std::size_t group = 0; group < groups; ++group) {
            Ints together{};
            for (std::size_t place = 0; place < SIZE && SIZE * group + place < inputs_; ++place) {
                const Ints byte = __builtin_convertvector(rounded(load(from + (SIZE * group + place) * columns) / divisor), Ints);
                sum += byte;
                together |= (byte & 0xff) << static_cast<int>(8 * place);
            }
            const Groups narrow = __builtin_convertvector(together, Groups);
            std::memcpy(to + group * columns, &narrow, sizeof narrow);
        }
        sum *= ADDED;
        store(scales_.data() + output, scale);
        std::memcpy(offsets_.data() + output, &sum, sizeof sum);
    }
}

ByteMatrix::ByteMatrix(const ByteRows& rows, std::span<const std::int64_t> outputs, const ByteMatrix& known, std::size_t alike)
    : outputs_(outputs.size()), inputs_(rows.inputs_) {
    const std::size_t width = (outputs_ + LANES - 1) / LANES * LANES, groups = (inputs_ + SIZE - 1) / SIZE;
    panels_.resize(width * groups), bias_.resize(width), scales_.resize(width), offsets_.resize(width);
    const std::size_t whole = alike / PackedMatrix::panel() * PackedMatrix::panel();  // the last panel may be narrower
    std::copy_n(known.panels_.begin(), whole * groups, panels_.begin());
    std::copy_n(known.bias_.begin(), whole, bias_.begin());
    std::copy_n(known.scales_.begin(), whole, scales_.begin());
    std::copy_n(known.offsets_.begin(), whole, offsets_.begin());
    for (std::size_t place = whole; place < outputs_; ++place) {
        const auto output = static_cast<std::size_t>(outputs[place]);
        const std::size_t first = place / PackedMatrix::panel() * PackedMatrix::panel(), columns = std::min(PackedMatrix::panel(), width - first);
        bias_[place] = rows.bias_[output], scales_[place] = rows.scales_[output], offsets_[place] = rows.offsets_[output];
        Group* to = panels_.data() + first * groups + (place - first);
        for (std::size_t group = 0; group < groups; ++group) to[group * columns] = rows.rows_[output * groups + group];
    }
}

void ByteMatrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Then then,
                          std::vector<Value>& values, Team& team) const {
    multiply_first(x, x_stride, rows, y, y_stride, (outputs_ + PackedMatrix::panel() - 1) / PackedMatrix::panel(), then, values, team);
}

void ByteMatrix::multiply_first(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, std::size_t panels,
                                Then then, std::vector<Value>& values, Team& team) const {
    const std::size_t groups = (inputs_ + SIZE - 1) / SIZE;
    if (values.size() < rows * SIZE * groups) values.resize(rows * SIZE * groups);
    std::vector<float> scales(rows);
    for (std::size_t row = 0; row < rows; ++row) scales[row] = narrowed(x + row * x_stride, inputs_, values.data() + row * SIZE * groups);
    const PanelProduct<ByteNumbers> product{
        values.data(), SIZE * groups, groups, panels_.data(), {bias_.data(), scales_.data(), offsets_.data(), scales.data()}, y, y_stride, outputs_, then};
    product.multiply(rows, panels, team);
}

}  // namespace fewstep
