#include "csrc/inference/lattice/network.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = LANES;
constexpr float NONE = -std::numeric_limits<float>::infinity();

std::size_t rounded_up(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

// A linear map in double: weights [D,D] and bias [D].
struct Passing {
    std::vector<double> weights, bias;

    // M = W_o W_v, c = W_o b_v + b_o
    Passing(const Arrays& arrays, const std::string& layer, std::size_t width) : weights(width * width), bias(width) {
        const float* values = arrays.at(layer + "attention.projection.weight") + 2 * width * width;
        const float* values_bias = arrays.at(layer + "attention.projection.bias") + 2 * width;
        const float* output = arrays.at(layer + "attention.output.weight");
        const float* output_bias = arrays.at(layer + "attention.output.bias");
        for (std::size_t row = 0; row < width; ++row) {
            bias[row] = output_bias[row];
            for (std::size_t middle = 0; middle < width; ++middle) {
                const double factor = output[row * width + middle];
                bias[row] += factor * values_bias[middle];
                for (std::size_t column = 0; column < width; ++column) weights[row * width + column] += factor * values[middle * width + column];
            }
        }
    }
    PackedMatrix packed() const {
        const std::vector<float> matrix(weights.begin(), weights.end()), shift(bias.begin(), bias.end());
        return {matrix.data(), shift.data(), bias.size(), bias.size()};
    }
};

LatticeLayer layer_of(const Arrays& arrays, const std::string& layer, const Heads& heads, Precision precision) {
    const std::size_t width = heads.width(), size = heads.size;
    const float* queries = arrays.at(layer + "cross_attention.queries.weight");
    const float* query_bias = arrays.at(layer + "cross_attention.queries.bias");
    const float* output = arrays.at(layer + "cross_attention.output.weight");
    const float* output_bias = arrays.at(layer + "cross_attention.output.bias");
    const float scale = 1.0F / std::sqrt(static_cast<float>(size));
    LatticeLayer found{Passing(arrays, layer, width).packed(), {}, {}, {}, std::vector<float>(width), {output_bias, output_bias + width}};
    found.narrow_passing = NarrowMatrix(found.passing, precision);
    for (std::size_t unit = 0; unit < width; ++unit) found.query_bias[unit] = query_bias[unit] * scale;
    std::vector<float> turned(width * size), part(width * size);
    for (std::size_t head = 0; head < heads.count; ++head) {
        for (std::size_t unit = 0; unit < width; ++unit)
            for (std::size_t inside = 0; inside < size; ++inside) {
                turned[unit * size + inside] = queries[(head * size + inside) * width + unit] * scale;
                part[unit * size + inside] = output[unit * width + head * size + inside];
            }
        found.queries.emplace_back(turned.data(), nullptr, width, size);
        found.outputs.emplace_back(part.data(), nullptr, width, size);
    }
    return found;
}

// x [D] less its mean, times `scale` if given.
void centre(float* x, const float* scale, std::size_t width) {
    double mean = 0.0;
    for (std::size_t unit = 0; unit < width; ++unit) mean += x[unit];
    mean /= static_cast<double>(width);
    for (std::size_t unit = 0; unit < width; ++unit) x[unit] = static_cast<float>((x[unit] - mean) * scale[unit]);
}

// The rows of `source` [rows,D], and behind them what the first block makes of them.
void make_table(const float* source, std::size_t rows, float factor, const Passing& passing, const float* norm_scale, std::size_t width,
                bool constant, Buffer& table) {
    const bool pre_norm = norm_scale != nullptr;
    const std::size_t stride = pre_norm ? 2 * width : width;
    table.reserve(rows * stride);
    std::vector<float> matrix(passing.weights.begin(), passing.weights.end()), shift(width, 0.0F), input(rows * width);
    if (!pre_norm) {
        for (std::size_t unit = 0; unit < width; ++unit) {
            matrix[unit * width + unit] = static_cast<float>(passing.weights[unit * width + unit] + 1.0);
            if (constant) shift[unit] = static_cast<float>(passing.bias[unit]);
        }
    }
    for (std::size_t row = 0; row < rows; ++row) {
        float* x = input.data() + row * width;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = source[row * width + unit] * factor;
        if (!pre_norm) continue;
        std::copy_n(x, width, table.data() + row * stride);
        centre(x, norm_scale, width);
    }
    const PackedMatrix packed(matrix.data(), shift.data(), width, width);
    packed.multiply(input.data(), width, rows, table.data() + (stride - width), stride);
}

// softmax of each head's scores, from rows [H S rounded up] to rows [H S]; behind the last one is room for a vector.
void soften(const float* scores, std::size_t rows, std::size_t heads, std::size_t length, float* weights) {
    const std::size_t stride = rounded_up(heads * length), vectors = rounded_up(length) / STEP;
    Ints inside;  // of the last vector
    for (std::size_t lane = 0; lane < STEP; ++lane) inside[static_cast<int>(lane)] = (vectors - 1) * STEP + lane < length ? -1 : 0;
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
            const float* x = scores + row * stride + head * length;
            float* y = weights + (row * heads + head) * length;  // a vector too far is written over by who comes next
            Floats highest = inside ? load(x + (vectors - 1) * STEP) : all(NONE);
            for (std::size_t vector = 0; vector + 1 < vectors; ++vector) highest = larger(highest, load(x + vector * STEP));
            const Floats top = all(highest_of(highest));
            Floats sum{};
            for (std::size_t vector = 0; vector < vectors; ++vector) {
                Floats score = load(x + vector * STEP);
                if (vector + 1 == vectors) score = inside ? score : all(NONE);
                const Floats weight = exp_of(score - top);
                store(y + vector * STEP, weight);
                sum += weight;
            }
            const Floats factor = all(1.0F / sum_of(sum));
            for (std::size_t vector = 0; vector < vectors; ++vector) store(y + vector * STEP, load(y + vector * STEP) * factor);
        }
}

}  // namespace

LatticeNetwork::LatticeNetwork(const TransformerShape& shape, const Arrays& arrays, Precision precision)
    : network(shape, arrays), precision_(precision), word_stride_(shape.width) {
    const std::size_t width = shape.width;
    for (std::size_t layer = 0; layer < shape.decoder_layers; ++layer)
        layers.push_back(layer_of(arrays, "decoder.layers." + std::to_string(layer) + ".", network.heads, precision));
    network.narrow(precision);
    const std::string first = "decoder.layers.0.";
    const Passing passing(arrays, first, width);
    const float* scale = shape.pre_norm ? arrays.at(first + "attention_residual.norm.weight") : nullptr;
    if (shape.pre_norm) {
        word_stride_ = 2 * width;
        const float* shift = arrays.at(first + "attention_residual.norm.bias");
        for (std::size_t row = 0; row < width; ++row) {
            double sum = passing.bias[row];
            for (std::size_t column = 0; column < width; ++column) sum += passing.weights[row * width + column] * shift[column];
            passed_bias_.push_back(static_cast<float>(sum));
        }
    }
    make_table(network.target_words.data(), shape.target_words, std::sqrt(static_cast<float>(width)), passing, scale, width, false, words_);
    make_table(network.slot_codes.data(), shape.slots, 1.0F, passing, scale, width, true, slots_);
}

std::vector<LatticeMemory> LatticeNetwork::remember(const float* states, std::size_t length) const {
    const std::size_t width = network.shape.width, size = network.heads.size, places = network.heads.count * length;
    const std::size_t padded = rounded_up(places);
    Buffer projected(length * 2 * width), folded(padded * width), outputs(places * width);
    std::vector<const float*> rows(padded);
    std::vector<float> bias(padded, 0.0F);
    std::vector<LatticeMemory> memory(layers.size());
    std::fill_n(folded.data() + places * width, (padded - places) * width, 0.0F);
    for (std::size_t index = 0; index < layers.size(); ++index) {
        const LatticeLayer& layer = layers[index];
        network.decoder[index].cross_projection.multiply(states, width, length, projected.data(), 2 * width);
        for (std::size_t head = 0; head < network.heads.count; ++head) {
            const float* keys = projected.data() + head * size;
            layer.queries[head].multiply(keys, 2 * width, length, folded.data() + head * length * width, width);
            layer.outputs[head].multiply(keys + width, 2 * width, length, outputs.data() + head * length * width, width);
            for (std::size_t place = 0; place < length; ++place)
                bias[head * length + place] = dot(layer.query_bias.data() + head * size, keys + place * 2 * width, size);
        }
        for (std::size_t row = 0; row < padded; ++row) rows[row] = folded.data() + row * width;
        memory[index].scores.pack(rows, bias.data(), width);
        memory[index].mix.pack_turned(outputs.data(), layer.output_bias.data(), width, places);
        memory[index].narrow_scores = NarrowMatrix(memory[index].scores, precision_);
        memory[index].narrow_mix = NarrowMatrix(memory[index].mix, precision_);
    }
    return memory;
}

// Word and position, with the first block of self-attention done.
void LatticeNetwork::begin(std::span<const Row> rows, float* x) const {
    const std::size_t width = network.shape.width;
    for (const Row& row : rows) {
        const float* word = words_.data() + static_cast<std::size_t>(row.word) * word_stride_;
        const float* slot = slots_.data() + row.slot * word_stride_;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = word[unit] + slot[unit];
        if (network.shape.pre_norm) {
            const float rate = moments_of(x, width).rate;
            const float *passed_word = word + width, *passed_slot = slot + width, *bias = passed_bias_.data();
            std::size_t unit = 0;
            for (; unit + STEP <= width; unit += STEP)
                store(x + unit, load(x + unit) + fused(load(passed_word + unit) + load(passed_slot + unit), all(rate), load(bias + unit)));
            for (; unit < width; ++unit) x[unit] += fused(passed_word[unit] + passed_slot[unit], rate, bias[unit]);
        }
        x += width;
    }
}

// x += attention of the rows `input` over the source
void LatticeNetwork::cross(const LatticeMemory& memory, std::size_t length, const float* input, std::size_t rows, Space& space) const {
    const std::size_t heads = network.heads.count;
    product(memory.scores, memory.narrow_scores, input, rows, space.scores.data(), Then::STORE, space.scratch);
    soften(space.scores.data(), rows, heads, length, space.weights.data());
    product(memory.mix, memory.narrow_mix, space.weights.data(), rows, space.x.data(), Then::ADD, space.scratch);
}

void LatticeNetwork::feed_forward(std::size_t layer, std::size_t rows, Space& space) const {
    const FeedForward& block = network.decoder[layer].feed_forward;
    const NarrowLayer& narrow = network.narrow_decoder[layer];
    residual(block.norm, network.shape.pre_norm, space.x.data(), rows, space.normed.data(), [&](const float* input) {
        product(block.widen, narrow.widen, input, rows, space.inner.data(), block.activation, space.scratch);
        product(block.narrow, narrow.narrow, space.inner.data(), rows, space.x.data(), Then::ADD, space.scratch);
    });
}

const float* LatticeNetwork::states(std::span<const Row> rows, const std::vector<LatticeMemory>& memory, std::size_t length,
                                    Space& space) const {
    const std::size_t width = network.shape.width, count = rows.size(), places = rounded_up(network.heads.count * length);
    const bool pre_norm = network.shape.pre_norm;
    space.x.reserve(count * width), space.normed.reserve(count * width), space.inner.reserve(count * std::max(width, network.shape.inner));
    space.scores.reserve(count * places + 2 * STEP), space.weights.reserve(count * places + 2 * STEP);
    float *x = space.x.data(), *normed = space.normed.data();
    begin(rows, x);
    for (std::size_t index = 0; index < layers.size(); ++index) {
        const DecoderLayer& layer = network.decoder[index];
        if (index > 0) {
            residual(layer.norm, pre_norm, x, count, normed, [&](const float* input) {
                float* passed = space.inner.data();  // x is read and written
                product(layers[index].passing, layers[index].narrow_passing, input, count, passed, Then::STORE, space.scratch);
                for (std::size_t unit = 0; unit < count * width; ++unit) x[unit] += passed[unit];
            });
        } else if (!pre_norm) {
            layer.norm.apply(x, count, x);
        }
        residual(layer.cross_norm, pre_norm, x, count, normed, [&](const float* input) { cross(memory[index], length, input, count, space); });
        feed_forward(index, count, space);
    }
    if (pre_norm) network.decoder_norm.apply(x, count, x);
    return x;
}

}  // namespace fewstep
