#include "csrc/inference/lattice/network.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = F32_LANES;
constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

std::size_t round_up_to_vectors(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

// A linear map in float64: weights [D,D] and bias [D].
struct SelfAttentionMap {
    std::vector<double> weights, bias;

    // M = W_o W_v, c = W_o b_v + b_o
    SelfAttentionMap(const Arrays& arrays, const std::string& layer, std::size_t width) : weights(width * width), bias(width) {
        const float* values = arrays.at(layer + "attention.projection.weight", {3 * width, width}) + 2 * width * width;
        const float* values_bias = arrays.at(layer + "attention.projection.bias", {3 * width}) + 2 * width;
        const float* output = arrays.at(layer + "attention.output.weight", {width, width});
        const float* output_bias = arrays.at(layer + "attention.output.bias", {width});
        for (std::size_t row = 0; row < width; ++row) {
            bias[row] = output_bias[row];
            for (std::size_t middle = 0; middle < width; ++middle) {
                const double factor = output[row * width + middle];
                bias[row] += factor * values_bias[middle];
                for (std::size_t column = 0; column < width; ++column)
                    weights[row * width + column] += factor * values[middle * width + column];
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
    const float* queries = arrays.at(layer + "cross_attention.queries.weight", {width, width});
    const float* query_bias = arrays.at(layer + "cross_attention.queries.bias", {width});
    const float* output = arrays.at(layer + "cross_attention.output.weight", {width, width});
    const float* output_bias = arrays.at(layer + "cross_attention.output.bias", {width});
    const float scale = 1.0F / std::sqrt(static_cast<float>(size));
    LatticeLayer found{
        SelfAttentionMap(arrays, layer, width).packed(), {}, {}, {}, std::vector<float>(width), {output_bias, output_bias + width}};
    found.quantized_self_attention = QuantizedMatrix(found.self_attention, precision);
    for (std::size_t unit = 0; unit < width; ++unit) found.query_bias[unit] = query_bias[unit] * scale;
    std::vector<float> transposed(width * size), head_output(width * size);
    for (std::size_t head = 0; head < heads.count; ++head) {
        for (std::size_t unit = 0; unit < width; ++unit)
            for (std::size_t inside = 0; inside < size; ++inside) {
                transposed[unit * size + inside] = queries[(head * size + inside) * width + unit] * scale;
                head_output[unit * size + inside] = output[unit * width + head * size + inside];
            }
        found.queries.emplace_back(transposed.data(), nullptr, width, size);
        found.outputs.emplace_back(head_output.data(), nullptr, width, size);
    }
    return found;
}

// x = (x - mean(x)) * scale
void center_and_scale(float* x, const float* scale, std::size_t width) {
    double mean = 0.0;
    for (std::size_t unit = 0; unit < width; ++unit) mean += x[unit];
    mean /= static_cast<double>(width);
    for (std::size_t unit = 0; unit < width; ++unit) x[unit] = static_cast<float>((x[unit] - mean) * scale[unit]);
}

// Write the rows of `source` [rows,D] (with pre-norm), followed by the output of the first block for them.
void make_table(const float* source, std::size_t rows, float factor, const SelfAttentionMap& self_attention,
                const float* norm_scale, std::size_t width, bool constant, Buffer& table) {
    const bool pre_norm = norm_scale != nullptr;
    const std::size_t stride = pre_norm ? 2 * width : width;
    table.reserve(rows * stride);
    std::vector<float> matrix(self_attention.weights.begin(), self_attention.weights.end()), shift(width, 0.0F),
        input(rows * width);
    if (!pre_norm) {
        for (std::size_t unit = 0; unit < width; ++unit) {
            matrix[unit * width + unit] = static_cast<float>(self_attention.weights[unit * width + unit] + 1.0);
            if (constant) shift[unit] = static_cast<float>(self_attention.bias[unit]);
        }
    }
    for (std::size_t row = 0; row < rows; ++row) {
        float* x = input.data() + row * width;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = source[row * width + unit] * factor;
        if (!pre_norm) continue;
        std::copy_n(x, width, table.data() + row * stride);
        center_and_scale(x, norm_scale, width);
    }
    const PackedMatrix packed(matrix.data(), shift.data(), width, width);
    packed.multiply(input.data(), width, rows, table.data() + (stride - width), stride);
}

// The softmax of each head, from rows [H S rounded up] to rows [H S]; the output has room for one vector behind the last row.
void softmax(const float* scores, std::size_t rows, std::size_t heads, std::size_t length, float* weights) {
    const std::size_t stride = round_up_to_vectors(heads * length), vectors = round_up_to_vectors(length) / STEP;
    I32Vector inside;  // lanes of the last vector that are within the row
    for (std::size_t lane = 0; lane < STEP; ++lane) inside[static_cast<int>(lane)] = (vectors - 1) * STEP + lane < length ? -1 : 0;
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
            const float* x = scores + row * stride + head * length;
            float* y = weights +
                       (row * heads + head) * length;  // elements of the last vector beyond the row are overwritten by the next row
            F32Vector highest = inside ? load(x + (vectors - 1) * STEP) : broadcast(MINUS_INFINITY);
            for (std::size_t vector = 0; vector + 1 < vectors; ++vector) highest = vector_max(highest, load(x + vector * STEP));
            const F32Vector top = broadcast(horizontal_max(highest));
            F32Vector sum{};
            for (std::size_t vector = 0; vector < vectors; ++vector) {
                F32Vector score = load(x + vector * STEP);
                if (vector + 1 == vectors) score = inside ? score : broadcast(MINUS_INFINITY);
                const F32Vector weight = vector_exp(score - top);
                store(y + vector * STEP, weight);
                sum += weight;
            }
            const F32Vector factor = broadcast(1.0F / horizontal_sum(sum));
            for (std::size_t vector = 0; vector < vectors; ++vector) store(y + vector * STEP, load(y + vector * STEP) * factor);
        }
}

}  // namespace

LatticeNetwork::LatticeNetwork(const TransformerShape& shape, const Arrays& arrays, Precision precision)
    : network(shape, arrays), precision_(precision), token_stride_(shape.width) {
    const std::size_t width = shape.width;
    for (std::size_t layer = 0; layer < shape.decoder_layers; ++layer)
        layers.push_back(layer_of(arrays, "decoder.layers." + std::to_string(layer) + ".", network.heads, precision));
    network.quantize(precision);
    const std::string first = "decoder.layers.0.";
    const SelfAttentionMap self_attention(arrays, first, width);
    const float* scale = shape.pre_norm ? arrays.at(first + "attention_residual.norm.weight", {width}) : nullptr;
    if (shape.pre_norm) {
        token_stride_ = 2 * width;
        const float* shift = arrays.at(first + "attention_residual.norm.bias", {width});
        for (std::size_t row = 0; row < width; ++row) {
            double sum = self_attention.bias[row];
            for (std::size_t column = 0; column < width; ++column)
                sum += self_attention.weights[row * width + column] * shift[column];
            self_attention_bias_.push_back(static_cast<float>(sum));
        }
    }
    make_table(network.target_embedding.data(), shape.target_vocabulary, shape.embedding_scale(), self_attention, scale, width,
               false, token_table_);
    make_table(network.slot_codes.data(), shape.slots, 1.0F, self_attention, scale, width, true, slot_table_);
}

std::vector<LatticeCrossCache> LatticeNetwork::project_memory(const float* states, std::size_t length) const {
    const std::size_t width = network.shape.width, size = network.heads.size, num_scores = network.heads.count * length;
    const std::size_t padded = round_up_to_vectors(num_scores);
    Buffer projected(length * 2 * width), folded(padded * width), outputs(num_scores * width);
    std::vector<const float*> rows(padded);
    std::vector<float> bias(padded, 0.0F);
    std::vector<LatticeCrossCache> cross_cache(layers.size());
    std::fill_n(folded.data() + num_scores * width, (padded - num_scores) * width, 0.0F);
    for (std::size_t index = 0; index < layers.size(); ++index) {
        const LatticeLayer& layer = layers[index];
        network.decoder[index].cross_projection.multiply(states, width, length, projected.data(), 2 * width);
        for (std::size_t head = 0; head < network.heads.count; ++head) {
            const float* keys = projected.data() + head * size;
            layer.queries[head].multiply(keys, 2 * width, length, folded.data() + head * length * width, width);
            layer.outputs[head].multiply(keys + width, 2 * width, length, outputs.data() + head * length * width, width);
            for (std::size_t position = 0; position < length; ++position)
                bias[head * length + position] = dot(layer.query_bias.data() + head * size, keys + position * 2 * width, size);
        }
        for (std::size_t row = 0; row < padded; ++row) rows[row] = folded.data() + row * width;
        cross_cache[index].scores.pack(rows, bias.data(), width);
        cross_cache[index].mix.pack_transposed(outputs.data(), layer.output_bias.data(), width, num_scores);
        cross_cache[index].quantized_scores = QuantizedMatrix(cross_cache[index].scores, precision_);
        cross_cache[index].quantized_mix = QuantizedMatrix(cross_cache[index].mix, precision_);
    }
    return cross_cache;
}

// Token and position, after the first self-attention block.
void LatticeNetwork::embed_rows(std::span<const Row> rows, float* x) const {
    const std::size_t width = network.shape.width;
    for (const Row& row : rows) {
        const float* token = token_table_.data() + static_cast<std::size_t>(row.token) * token_stride_;
        const float* slot = slot_table_.data() + row.slot * token_stride_;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = token[unit] + slot[unit];
        if (network.shape.pre_norm) {
            const float inverse_deviation = moments(x, width).inverse_deviation;
            const float *passed_word = token + width, *passed_slot = slot + width, *bias = self_attention_bias_.data();
            std::size_t unit = 0;
            for (; unit + STEP <= width; unit += STEP)
                store(x + unit, load(x + unit) + multiply_add(load(passed_word + unit) + load(passed_slot + unit),
                                                              broadcast(inverse_deviation), load(bias + unit)));
            for (; unit < width; ++unit)
                x[unit] += multiply_add(passed_word[unit] + passed_slot[unit], inverse_deviation, bias[unit]);
        }
        x += width;
    }
}

// x += cross-attention of the rows `input`
void LatticeNetwork::add_cross_attention(const LatticeCrossCache& cross_cache, std::size_t length, const float* input,
                                         std::size_t rows, Workspace& workspace) const {
    const std::size_t heads = network.heads.count;
    gemm(cross_cache.scores, cross_cache.quantized_scores, input, rows, workspace.scores.data(), Epilogue::STORE,
         workspace.scratch);
    softmax(workspace.scores.data(), rows, heads, length, workspace.weights.data());
    gemm(cross_cache.mix, cross_cache.quantized_mix, workspace.weights.data(), rows, workspace.x.data(), Epilogue::ADD,
         workspace.scratch);
}

void LatticeNetwork::add_feed_forward(std::size_t layer, std::size_t rows, Workspace& workspace) const {
    const FeedForward& block = network.decoder[layer].feed_forward;
    const QuantizedLayer& quantized = network.quantized_decoder[layer];
    residual(block.norm, network.shape.pre_norm, workspace.x.data(), rows, workspace.normed.data(), [&](const float* input) {
        gemm(block.widen, quantized.widen, input, rows, workspace.inner.data(), block.activation, workspace.scratch);
        gemm(block.narrow, quantized.narrow, workspace.inner.data(), rows, workspace.x.data(), Epilogue::ADD, workspace.scratch);
    });
}

const float* LatticeNetwork::states(std::span<const Row> rows, const std::vector<LatticeCrossCache>& cross_cache,
                                    std::size_t length, Workspace& workspace) const {
    const std::size_t width = network.shape.width, count = rows.size(),
                      num_scores = round_up_to_vectors(network.heads.count * length);
    const bool pre_norm = network.shape.pre_norm;
    workspace.x.reserve(count * width), workspace.normed.reserve(count * width),
        workspace.inner.reserve(count * std::max(width, network.shape.inner));
    workspace.scores.reserve(count * num_scores + 2 * STEP), workspace.weights.reserve(count * num_scores + 2 * STEP);
    float *x = workspace.x.data(), *normed = workspace.normed.data();
    embed_rows(rows, x);
    for (std::size_t index = 0; index < layers.size(); ++index) {
        const DecoderLayer& layer = network.decoder[index];
        if (index > 0) {
            residual(layer.norm, pre_norm, x, count, normed, [&](const float* input) {
                float* self_attention_output = workspace.inner.data();  // x cannot be the output of a product of itself
                gemm(layers[index].self_attention, layers[index].quantized_self_attention, input, count, self_attention_output,
                     Epilogue::STORE, workspace.scratch);
                for (std::size_t unit = 0; unit < count * width; ++unit) x[unit] += self_attention_output[unit];
            });
        } else if (!pre_norm) {
            layer.norm.apply(x, count, x);
        }
        residual(layer.cross_norm, pre_norm, x, count, normed,
                 [&](const float* input) { add_cross_attention(cross_cache[index], length, input, count, workspace); });
        add_feed_forward(index, count, workspace);
    }
    if (pre_norm) network.decoder_norm.apply(x, count, x);
    return x;
}

}  // namespace fewstep
