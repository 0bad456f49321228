#include "csrc/inference/gemm/int8_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/base/simd_f32.h"
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

namespace {

using Group = Int8Format::Group;
using Value = Int8Format::Value;
constexpr std::size_t GROUP_SIZE = PackedGemm<Int8Format>::GROUP_SIZE, STEP = Int8Format::STEP, STEP_SIZE = STEP * GROUP_SIZE,
                      PANEL = packed_gemm::PANEL;
static_assert(sizeof(Group) == GROUP_SIZE);

std::size_t padded_outputs(std::size_t outputs) { return (outputs + F32_LANES - 1) / F32_LANES * F32_LANES; }
std::size_t num_groups(std::size_t inputs) { return (inputs + STEP_SIZE - 1) / STEP_SIZE * STEP; }
std::size_t num_panels(std::size_t outputs) { return (outputs + PANEL - 1) / PANEL; }

// Bytes from one row of values to the next: an odd number of cache lines, because rows whose distance is a power of two share few
// places of the nearest cache.
std::size_t row_stride(std::size_t inputs) {
    return ((num_groups(inputs) * GROUP_SIZE / packed_gemm::CACHE_LINE + 1) | 1) * packed_gemm::CACHE_LINE;
}

Group* groups_of(Buffer& panels) { return reinterpret_cast<Group*>(panels.data()); }
const Group* groups_of(const Buffer& panels) { return reinterpret_cast<const Group*>(panels.data()); }

// The place of a group of an output in panels of `width` outputs in all.
std::size_t place(std::size_t output, std::size_t group, std::size_t width, std::size_t groups) {
    const std::size_t first = output / PANEL * PANEL, vectors = std::min(PANEL, width - first) / F32_LANES;
    const std::size_t vector = (output - first) / F32_LANES, lane = output % F32_LANES;
    return first * groups + ((group / STEP * vectors + vector) * STEP + group % STEP) * F32_LANES + lane;
}

// Round to the nearest integer, ties to even; |x| < 2^22.
float round_to_even(float x) { return (x + 12582912.0F) - 12582912.0F; }
F32Vector round_to_even(F32Vector x) { return (x + 12582912.0F) - 12582912.0F; }

// max(0, max_i x_i) and max(0, max_i -x_i)
struct Range {
    float positive = 0.0F, negative = 0.0F;
};

Range range_of(const float* x, std::size_t count) {
    F32Vector positive{}, negative{};
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES) {
        positive = vector_max(positive, load(x + position));
        negative = vector_max(negative, -load(x + position));
    }
    Range range{horizontal_max(positive), horizontal_max(negative)};
    for (; position < count; ++position)
        range.positive = std::max(range.positive, x[position]), range.negative = std::max(range.negative, -x[position]);
    return range;
}

// Quantize x [count] = t (u - z) into bytes u, padded to whole steps, whose weights are 0.
QuantizedRow quantize(const float* x, std::size_t count, Value* to) {
    typedef Value Bytes __attribute__((vector_size(F32_LANES * sizeof(Value))));
    const auto [positive, negative] = range_of(x, count);
    const float span = Int8Format::ROW_ZEROS ? positive + negative : std::max(positive, negative);
    const float steps = Int8Format::ROW_ZEROS ? static_cast<float>(VALUE_RANGE) : 127.0F,
                factor = span > 0.0F ? steps / span : 0.0F;
    const float below = round_to_even(negative * factor);  // no number where x holds infinities
    const std::int32_t row_zero = below <= static_cast<float>(VALUE_RANGE) ? static_cast<std::int32_t>(below) : 0,
                       zero = Int8Format::ROW_ZEROS ? row_zero : Int8Format::ZERO;
    std::size_t position = 0;
    for (; position + F32_LANES <= count; position += F32_LANES) {
        const Bytes bytes =
            __builtin_convertvector(__builtin_convertvector(round_to_even(load(x + position) * factor), I32Vector) + zero, Bytes);
        std::memcpy(to + position, &bytes, sizeof bytes);
    }
    for (; position < count; ++position)
        to[position] = static_cast<Value>(static_cast<std::int32_t>(round_to_even(x[position] * factor)) + zero);
    for (; position % STEP_SIZE != 0; ++position) to[position] = 0;
    return {span / steps, zero};
}

// The quantised weights of LANES outputs.
struct QuantizedOutputs {
    std::vector<I32Vector> groups;
    F32Vector scales{};
    I32Vector sums{};  // over the inputs
};

// The least scales with which the weights of LANES outputs, `stride` floats apart for each input, are within their limits.
F32Vector weight_scales(const float* weights, std::size_t stride, std::size_t inputs) {
    F32Vector top{};
    for (std::size_t input = 0; input < inputs; ++input)
        top = vector_max(top, vector_max(load(weights + input * stride), -load(weights + input * stride)));
    F32Vector scales = top / 127.0F;
    if constexpr (STEP == 1) return scales;
    // The inputs 0, 1, 4 and 5 of a step have a sum of 16 bits, and the others.
    for (std::size_t first = 0; first < inputs; first += first % STEP_SIZE == 0 ? 2 : STEP_SIZE - 2) {
        F32Vector positive{}, negative{};
        for (const std::size_t input : {first, first + 1, first + GROUP_SIZE, first + GROUP_SIZE + 1}) {
            const F32Vector weight = input < inputs ? load(weights + input * stride) : F32Vector{};
            positive += vector_max(weight, F32Vector{}), negative += vector_max(-weight, F32Vector{});
        }
        scales = vector_max(scales, vector_max(positive, negative) / static_cast<float>(MAX_WEIGHT_SUM));
    }
    return scales;
}

// Quantize the outputs from `first` on, a multiple of LANES.
QuantizedOutputs quantize(const PackedMatrix& matrix, std::size_t first) {
    const std::size_t inputs = matrix.inputs(), start = first / PANEL * PANEL,
                      stride = std::min(PANEL, padded_outputs(matrix.outputs()) - start);
    const float* weights = matrix.weights() + start * inputs + (first - start);
    QuantizedOutputs found{std::vector<I32Vector>(num_groups(inputs)), weight_scales(weights, stride, inputs)};
    const F32Vector divisors = found.scales > 0.0F ? found.scales : broadcast(1.0F);
    for (std::size_t input = 0; input < inputs; ++input) {
        const F32Vector steps = round_to_even(load(weights + input * stride) / divisors);
        // Weights that are no finite numbers have no such steps: they count as zero.
        const F32Vector finite = (steps >= -127.0F) & (steps <= 127.0F) ? steps : F32Vector{};
        const I32Vector weight = __builtin_convertvector(finite, I32Vector);
        found.sums += weight;
        found.groups[input / GROUP_SIZE] |= (weight & 0xff) << static_cast<int>(8 * (input % GROUP_SIZE));
    }
    return found;
}

}  // namespace

Int8Rows::Int8Rows(const PackedMatrix& matrix)
    : inputs_(matrix.inputs()),
      rows_(matrix.outputs() * num_groups(inputs_)),
      bias_(matrix.bias(), matrix.bias() + matrix.outputs()),
      scales_(matrix.outputs()),
      sums_(matrix.outputs()) {
    const std::size_t outputs = matrix.outputs(), groups = num_groups(inputs_);
    for (std::size_t first = 0; first < outputs; first += F32_LANES) {
        const QuantizedOutputs quantized = quantize(matrix, first);
        for (std::size_t output = first; output < std::min(outputs, first + F32_LANES); ++output) {
            const auto lane = static_cast<int>(output - first);
            scales_[output] = quantized.scales[lane], sums_[output] = quantized.sums[lane];
            for (std::size_t group = 0; group < groups; ++group)
                rows_[output * groups + group] = static_cast<Group>(quantized.groups[group][lane]);
        }
    }
}

Int8Matrix::Int8Matrix(std::size_t outputs, std::size_t inputs)
    : outputs_(outputs),
      inputs_(inputs),
      panels_(padded_outputs(outputs) * num_groups(inputs)),
      bias_(padded_outputs(outputs)),
      scales_(padded_outputs(outputs)),
      sums_(padded_outputs(outputs)) {}

Int8Matrix::Int8Matrix(const PackedMatrix& matrix) : Int8Matrix(matrix.outputs(), matrix.inputs()) {
    const std::size_t width = padded_outputs(outputs_), groups = num_groups(inputs_);
    std::copy_n(matrix.bias(), width, bias_.begin());
    for (std::size_t first = 0; first < width; first += F32_LANES) {
        const QuantizedOutputs quantized = quantize(matrix, first);
        store(scales_.data() + first, quantized.scales);
        std::memcpy(sums_.data() + first, &quantized.sums, sizeof quantized.sums);
        for (std::size_t group = 0; group < groups; ++group)
            std::memcpy(groups_of(panels_) + place(first, group, width, groups), &quantized.groups[group], sizeof(I32Vector));
    }
}

Int8Matrix::Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs, const Int8Matrix& prefix, std::size_t shared)
    : Int8Matrix(outputs.size(), rows.inputs_) {
    const std::size_t width = padded_outputs(outputs_), groups = num_groups(inputs_);
    const std::size_t whole = shared / PANEL * PANEL;  // the last panel may be narrower
    std::copy_n(groups_of(prefix.panels_), whole * groups, groups_of(panels_));
    const std::size_t last = outputs_ / PANEL * PANEL;
    std::fill(groups_of(panels_) + last * groups, groups_of(panels_) + width * groups, Group{0});  // behind the last output
    std::copy_n(prefix.bias_.begin(), whole, bias_.begin());
    std::copy_n(prefix.scales_.begin(), whole, scales_.begin());
    std::copy_n(prefix.sums_.begin(), whole, sums_.begin());
    for (std::size_t position = whole; position < outputs_; ++position) {
        const auto output = static_cast<std::size_t>(outputs[position]);
        bias_[position] = rows.bias_[output], scales_[position] = rows.scales_[output], sums_[position] = rows.sums_[output];
        const Group* row = rows.rows_.data() + output * groups;
        for (std::size_t group = 0; group < groups; group += STEP) {
            Group* to = groups_of(panels_) + place(position, group, width, groups);
            for (std::size_t next = 0; next < STEP; ++next) to[next * F32_LANES] = row[group + next];
        }
    }
}

void Int8Matrix::multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                          Scratch& scratch, ThreadTeam& team) const {
    multiply_first_panels(x, x_stride, rows, y, y_stride, num_panels(outputs_), epilogue, scratch, team);
}

void Int8Matrix::multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                       std::size_t panels, Epilogue epilogue, Scratch& scratch, ThreadTeam& team) const {
    const std::size_t groups = num_groups(inputs_), stride = row_stride(inputs_);
    scratch.values.reserve(rows * stride / sizeof(float)), scratch.rows.resize(rows);
    auto* values = reinterpret_cast<Value*>(scratch.values.data());
    for (std::size_t row = 0; row < rows; ++row) scratch.rows[row] = quantize(x + row * x_stride, inputs_, values + row * stride);
    const Int8Format::Dequantize dequantize{bias_.data(), scales_.data(), sums_.data(), scratch.rows.data()};
    const PackedGemm<Int8Format> product{values, stride, groups, groups_of(panels_), dequantize, y, y_stride, outputs_, epilogue};
    product.multiply(rows, panels, team);
}

}  // namespace fewstep
