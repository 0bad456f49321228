#include "csrc/inference/gemm/int8_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

// A value is a quantised input r plus VALUE_OFFSET; a group is the weights of as many inputs as 32 bits hold values.
#if defined(__AVX512VNNI__)
using Int8Value = std::uint8_t;
using Int8Group = std::uint32_t;
constexpr std::int32_t VALUE_OFFSET = 128;  // the instruction takes unsigned values
#elif defined(__ARM_FEATURE_DOTPROD)
using Int8Value = std::int8_t;
using Int8Group = std::uint32_t;
constexpr std::int32_t VALUE_OFFSET = 0;
#else
using Int8Value = std::int16_t;
using Int8Group = std::uint16_t;
typedef std::int8_t I8Vector __attribute__((vector_size(2 * F32_LANES * sizeof(std::int8_t))));
typedef std::int16_t I16Vector __attribute__((vector_size(2 * F32_LANES * sizeof(std::int16_t))));
constexpr std::int32_t VALUE_OFFSET = 0;
#endif

struct Int8Format {
    using Value = Int8Value;
    using Group = Int8Group;
    using Sums = I32Vector;
    static constexpr std::size_t MIN_WORK = 1 << 17;

    static I32Vector weights(const Int8Group* at) {
#if defined(__AVX512VNNI__) || defined(__ARM_FEATURE_DOTPROD)
        I32Vector groups;
        std::memcpy(&groups, at, sizeof groups);
        return groups;
#else
        I8Vector bytes;
        std::memcpy(&bytes, at, sizeof bytes);
        return std::bit_cast<I32Vector>(__builtin_convertvector(bytes, I16Vector));
#endif
    }

    static I32Vector values(const Int8Value* at) { return broadcast_group(at); }

    // sums + the products of a group
    static I32Vector add_products(I32Vector sums, I32Vector values, I32Vector weights) {
#if defined(__AVX512VNNI__)
        return std::bit_cast<I32Vector>(
            _mm512_dpbusd_epi32(std::bit_cast<__m512i>(sums), std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX512BW__)
        return sums + std::bit_cast<I32Vector>(_mm512_madd_epi16(std::bit_cast<__m512i>(values), std::bit_cast<__m512i>(weights)));
#elif defined(__AVX2__) && !defined(__AVX512F__)
        return sums + std::bit_cast<I32Vector>(_mm256_madd_epi16(std::bit_cast<__m256i>(values), std::bit_cast<__m256i>(weights)));
#elif defined(__SSE2__) && !defined(__AVX__)
        return sums + std::bit_cast<I32Vector>(_mm_madd_epi16(std::bit_cast<__m128i>(values), std::bit_cast<__m128i>(weights)));
#elif defined(__ARM_FEATURE_DOTPROD)
        return std::bit_cast<I32Vector>(
            vdotq_s32(std::bit_cast<int32x4_t>(sums), std::bit_cast<int8x16_t>(values), std::bit_cast<int8x16_t>(weights)));
#else
        return sums + ((values << 16) >> 16) * ((weights << 16) >> 16) + (values >> 16) * (weights >> 16);
#endif
    }

    struct Dequantize {
        const float *bias, *scales;
        const std::int32_t* offsets;
        const float* rows;

        F32Vector operator()(I32Vector sums, std::size_t row, std::size_t column) const {
            I32Vector offset;
            std::memcpy(&offset, offsets + column, sizeof offset);
            return multiply_add(__builtin_convertvector(sums - offset, F32Vector) * load(scales + column), broadcast(rows[row]),
                                load(bias + column));
        }
    };
};

constexpr std::size_t GROUP_SIZE = PackedGemm<Int8Format>::GROUP_SIZE;

// Round to the nearest integer, ties to even; |x| < 2^22.
float round_to_even(float x) { return (x + 12582912.0F) - 12582912.0F; }
F32Vector round_to_even(F32Vector x) { return (x + 12582912.0F) - 12582912.0F; }

// max_i |x_i|
float max_abs(const float* x, std::size_t count) {
    F32Vector top{};
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES)
        top = vector_max(top, vector_max(load(x + position), -load(x + position)));
    float found = horizontal_max(top);
    for (; position < count; ++position) found = std::max(found, std::abs(x[position]));
    return found;
}

// Quantize x [count] = t r into `to`, padded with 0 to whole groups, and return t.
float quantize(const float* x, std::size_t count, Int8Value* to) {
    typedef Int8Value Narrow __attribute__((vector_size(F32_LANES * sizeof(Int8Value))));
    const float top = max_abs(x, count), factor = top > 0.0F ? 127.0F / top : 0.0F;
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES) {
        const Narrow values = __builtin_convertvector(
            __builtin_convertvector(round_to_even(load(x + position) * factor), I32Vector) + VALUE_OFFSET, Narrow);
        std::memcpy(to + position, &values, sizeof values);
    }
    for (; position < count; ++position)
        to[position] = static_cast<Int8Value>(static_cast<std::int32_t>(round_to_even(x[position] * factor)) + VALUE_OFFSET);
    for (; position % GROUP_SIZE != 0; ++position) to[position] = VALUE_OFFSET;
    return top / 127.0F;
}

}  // namespace

Int8Rows::Int8Rows(const PackedMatrix& matrix)
    : inputs_(matrix.inputs()),
      bias_(matrix.bias(), matrix.bias() + matrix.outputs()),
      scales_(matrix.outputs()),
      offsets_(matrix.outputs()) {
    const std::size_t outputs = matrix.outputs(), width = (outputs + F32_LANES - 1) / F32_LANES * F32_LANES,
                      groups = (inputs_ + GROUP_SIZE - 1) / GROUP_SIZE;
    rows_.resize(outputs * groups * sizeof(Int8Group));
    for (std::size_t output = 0; output < outputs; ++output) {
        const std::size_t first = output / PackedMatrix::panel_width() * PackedMatrix::panel_width(),
                          columns = std::min(PackedMatrix::panel_width(), width - first);
        const float* from = matrix.weights() + first * inputs_ + (output - first);
        float& scale = scales_[output];
        for (std::size_t input = 0; input < inputs_; ++input) scale = std::max(scale, std::abs(from[input * columns]) / 127.0F);
        const auto quantized_weight = [&](std::size_t input) {
            if (input >= inputs_ || scale == 0.0F) return std::int8_t{0};
            return static_cast<std::int8_t>(round_to_even(from[input * columns] / scale));
        };
        for (std::size_t group = 0; group < groups; ++group) {
            std::int8_t group_weights[GROUP_SIZE];
            for (std::size_t position = 0; position < GROUP_SIZE; ++position) {
                group_weights[position] = quantized_weight(GROUP_SIZE * group + position);
                offsets_[output] += VALUE_OFFSET * group_weights[position];
            }
            std::memcpy(&rows_[(output * groups + group) * sizeof(Int8Group)], group_weights, sizeof(Int8Group));
        }
    }
}

Int8Matrix::Int8Matrix(const PackedMatrix& matrix) : outputs_(matrix.outputs()), inputs_(matrix.inputs()) {
    typedef Int8Group Groups __attribute__((vector_size(F32_LANES * sizeof(Int8Group))));
    static_assert(sizeof(Int8Group) == GROUP_SIZE);
    const std::size_t width = (outputs_ + F32_LANES - 1) / F32_LANES * F32_LANES, groups = (inputs_ + GROUP_SIZE - 1) / GROUP_SIZE;
    panels_.resize(width * groups * sizeof(Int8Group)), scales_.resize(width), offsets_.resize(width);
    bias_.assign(matrix.bias(), matrix.bias() + width);
    for (std::size_t output = 0; output < width; output += F32_LANES) {
        const std::size_t first = output / PackedMatrix::panel_width() * PackedMatrix::panel_width(),
                          columns = std::min(PackedMatrix::panel_width(), width - first);
        const float* from = matrix.weights() + first * inputs_ + (output - first);
        std::byte* to = panels_.data() + (first * groups + (output - first)) * sizeof(Int8Group);
        F32Vector top{};
        for (std::size_t input = 0; input < inputs_; ++input)
            top = vector_max(top, vector_max(load(from + input * columns), -load(from + input * columns)));
        const F32Vector scale = top / 127.0F, divisor = scale > 0.0F ? scale : broadcast(1.0F);
        I32Vector sum{};
        for (std::size_t group = 0; group < groups; ++group) {
            I32Vector group_weights{};
            for (std::size_t position = 0; position < GROUP_SIZE && GROUP_SIZE * group + position < inputs_; ++position) {
                const I32Vector quantized_weight = __builtin_convertvector(
                    round_to_even(load(from + (GROUP_SIZE * group + position) * columns) / divisor), I32Vector);
                sum += quantized_weight;
                group_weights |= (quantized_weight & 0xff) << static_cast<int>(8 * position);
            }
            const Groups packed = __builtin_convertvector(group_weights, Groups);
            std::memcpy(to + group * columns * sizeof(Int8Group), &packed, sizeof packed);
        }
        sum *= VALUE_OFFSET;
        store(scales_.data() + output, scale);
        std::memcpy(offsets_.data() + output, &sum, sizeof sum);
    }
}

Int8Matrix::Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs, const Int8Matrix& prefix, std::size_t shared)
    : outputs_(outputs.size()), inputs_(rows.inputs_) {
    const std::size_t width = (outputs_ + F32_LANES - 1) / F32_LANES * F32_LANES, groups = (inputs_ + GROUP_SIZE - 1) / GROUP_SIZE;
    panels_.resize(width * groups * sizeof(Int8Group)), bias_.resize(width), scales_.resize(width), offsets_.resize(width);
    const std::size_t whole = shared / PackedMatrix::panel_width() * PackedMatrix::panel_width();  // the last panel may be narrower
    std::copy_n(prefix.panels_.begin(), whole * groups * sizeof(Int8Group), panels_.begin());
    std::copy_n(prefix.bias_.begin(), whole, bias_.begin());
    std::copy_n(prefix.scales_.begin(), whole, scales_.begin());
    std::copy_n(prefix.offsets_.begin(), whole, offsets_.begin());
    for (std::size_t position = whole; position < outputs_; ++position) {
        const auto output = static_cast<std::size_t>(outputs[position]);
        const std::size_t first = position / PackedMatrix::panel_width() * PackedMatrix::panel_width(),
                          columns = std::min(PackedMatrix::panel_width(), width - first);
        bias_[position] = rows.bias_[output], scales_[position] = rows.scales_[output], offsets_[position] = rows.offsets_[output];
        const std::byte* from = rows.rows_.data() + output * groups * sizeof(Int8Group);
        std::byte* to = panels_.data() + (first * groups + (position - first)) * sizeof(Int8Group);
        for (std::size_t group = 0; group < groups; ++group)
            std::memcpy(to + group * columns * sizeof(Int8Group), from + group * sizeof(Int8Group), sizeof(Int8Group));
    }
}

void Int8Matrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                          Scratch& values, ThreadTeam& team) const {
    multiply_first_panels(x, x_stride, rows, y, y_stride,
                          (outputs_ + PackedMatrix::panel_width() - 1) / PackedMatrix::panel_width(), epilogue, values, team);
}

void Int8Matrix::multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                       std::size_t panels, Epilogue epilogue, Scratch& values, ThreadTeam& team) const {
    const std::size_t groups = (inputs_ + GROUP_SIZE - 1) / GROUP_SIZE;
    const std::size_t row_values = GROUP_SIZE * groups;
    if (values.size() < rows * row_values * sizeof(Int8Value)) values.resize(rows * row_values * sizeof(Int8Value));
    const auto quantized = reinterpret_cast<Int8Value*>(values.data());
    std::vector<float> scales(rows);
    for (std::size_t row = 0; row < rows; ++row) scales[row] = quantize(x + row * x_stride, inputs_, quantized + row * row_values);
    const PackedGemm<Int8Format> product{quantized,
                                         row_values,
                                         groups,
                                         reinterpret_cast<const Int8Group*>(panels_.data()),
                                         {bias_.data(), scales_.data(), offsets_.data(), scales.data()},
                                         y,
                                         y_stride,
                                         outputs_,
                                         epilogue};
    product.multiply(rows, panels, team);
}

}  // namespace fewstep
