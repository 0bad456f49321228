#include "csrc/inference/network/transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "csrc/inference/network/sequence_pass.h"

namespace fewstep {

namespace {

template <typename Sizes>
std::string listed(const Sizes& sizes) {
    std::string text;
    for (const std::size_t size : sizes) text.append(text.empty() ? "" : ",").append(std::to_string(size));
    return text;
}

}  // namespace

const float* Arrays::at(const std::string& name, std::initializer_list<std::size_t> sizes) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) throw std::invalid_argument("arrays: missing " + name);
    if (!std::ranges::equal(found->second.sizes, sizes))
        throw std::invalid_argument("arrays: " + name + ": expected [" + listed(sizes) + "], got [" + listed(found->second.sizes) +
                                    "]");
    return found->second.values;
}

namespace {

// Looks up weights by name.
struct WeightReader {
    const TransformerShape& shape;
    const Arrays& arrays;

    PackedMatrix matrix(const std::string& name, std::size_t outputs, std::size_t inputs) const {
        return {arrays.at(name + ".weight", {outputs, inputs}), arrays.at(name + ".bias", {outputs}), outputs, inputs};
    }
    LayerNorm norm(const std::string& name) const {
        return {arrays.at(name + ".weight", {shape.width}), arrays.at(name + ".bias", {shape.width}), shape.width};
    }
    FeedForward feed_forward(const std::string& layer) const {
        return {matrix(layer + "feed_forward.widen", shape.inner, shape.width),
                matrix(layer + "feed_forward.narrow", shape.width, shape.inner), norm(layer + "feed_forward_residual.norm"),
                shape.activation};
    }
    EncoderLayer encoder_layer(const std::string& layer) const {
        const std::size_t width = shape.width;
        return {matrix(layer + "attention.projection", 3 * width, width), matrix(layer + "attention.output", width, width),
                norm(layer + "attention_residual.norm"), feed_forward(layer)};
    }
    DecoderLayer decoder_layer(const std::string& layer) const {
        const std::size_t width = shape.width;
        return {matrix(layer + "attention.projection", 3 * width, width),
                matrix(layer + "attention.output", width, width),
                norm(layer + "attention_residual.norm"),
                matrix(layer + "cross_attention.queries", width, width),
                matrix(layer + "cross_attention.projection", 2 * width, width),
                matrix(layer + "cross_attention.output", width, width),
                norm(layer + "cross_attention_residual.norm"),
                feed_forward(layer)};
    }
    std::vector<float> table(const std::string& name, std::size_t rows) const {
        const float* values = arrays.at(name, {rows, shape.width});
        return {values, values + rows * shape.width};
    }
};

// Throws std::invalid_argument for sizes that no network has. Arrays bound the others.
const TransformerShape& checked(const TransformerShape& shape) {
    constexpr std::size_t MAX_INNER = std::size_t{1} << 24;
    const bool positive = std::min({shape.width, shape.inner, shape.heads, shape.source_vocabulary, shape.target_vocabulary,
                                    shape.source_positions, shape.slots}) > 0;
    if (!positive || shape.width % shape.heads != 0 || shape.inner > MAX_INNER)
        throw std::invalid_argument(
            "shape: expected sizes of at least 1, a width that is a multiple of heads, and a feed_forward " +
            ("of at most " + std::to_string(MAX_INNER)));
    return shape;
}

// Source embeddings [rows,D], sentences one after the other.
void embed_sources(const Transformer& model, const Sources& sources, float* x) {
    const std::size_t width = model.shape.width;
    const auto& table = model.source_embedding.empty() ? model.target_embedding : model.source_embedding;
    const float scale = model.shape.embedding_scale();
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence)
        for (std::int64_t position = 0; position < sources.lengths[sentence]; ++position) {
            const auto token =
                static_cast<std::size_t>(sources.ids[sources.rows[sentence] * sources.stride + static_cast<std::size_t>(position)]);
            const float* embedding = table.data() + token * width;
            const float* position_code = model.source_positions.data() + static_cast<std::size_t>(position) * width;
            for (std::size_t unit = 0; unit < width; ++unit) *x++ = embedding[unit] * scale + position_code[unit];
        }
}

std::size_t cross_cache_size(std::size_t length, std::size_t width) { return (padded_length(length) + length) * width; }

}  // namespace

Transformer::Transformer(const TransformerShape& transformer_shape, const Arrays& arrays)
    : shape(checked(transformer_shape)), heads{transformer_shape.heads, transformer_shape.width / transformer_shape.heads} {
    const WeightReader read{shape, arrays};
    target_embedding = read.table("target_embedding", shape.target_vocabulary);
    if (arrays.has("source_embedding"))
        source_embedding = read.table("source_embedding", shape.source_vocabulary);
    else if (shape.source_vocabulary != shape.target_vocabulary)
        throw std::invalid_argument("shape: expected vocabularies of one size without a source_embedding, got " +
                                    std::to_string(shape.source_vocabulary) + " and " + std::to_string(shape.target_vocabulary));
    for (std::size_t layer = 0; layer < shape.encoder_layers; ++layer)
        encoder.push_back(read.encoder_layer("encoder.layers." + std::to_string(layer) + "."));
    for (std::size_t layer = 0; layer < shape.decoder_layers; ++layer)
        decoder.push_back(read.decoder_layer("decoder.layers." + std::to_string(layer) + "."));
    if (shape.pre_norm) encoder_norm = read.norm("encoder.norm"), decoder_norm = read.norm("decoder.norm");
    quantized_encoder.resize(encoder.size()), quantized_decoder.resize(decoder.size());
    source_positions = read.table("source_positions", shape.source_positions);
    slot_codes = read.table("slot_codes", shape.slots);
    if (arrays.has("logits_bias")) {
        const float* bias = arrays.at("logits_bias", {shape.target_vocabulary});
        logits_bias.assign(bias, bias + shape.target_vocabulary);
    }
    vocabulary = {target_embedding.data(), logits_bias.empty() ? nullptr : logits_bias.data(), shape.target_vocabulary,
                  shape.width};
}

void Transformer::quantize(Precision precision) {
    for (std::size_t layer = 0; layer < encoder.size(); ++layer)
        quantized_encoder[layer] = QuantizedLayer(encoder[layer], precision);
    for (std::size_t layer = 0; layer < decoder.size(); ++layer)
        quantized_decoder[layer] = QuantizedLayer(decoder[layer], precision);
    quantized_vocabulary = QuantizedMatrix(vocabulary, precision == Precision::INT8 ? precision : Precision::FLOAT32);
    if (precision == Precision::INT8 && !lexicon.common_tokens.empty()) lexicon.quantize(vocabulary);
}

void Transformer::exclude(std::span<const std::int64_t> tokens) {
    logits_bias.resize(shape.target_vocabulary);
    for (const std::int64_t token : tokens) logits_bias[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    vocabulary = {target_embedding.data(), logits_bias.data(), shape.target_vocabulary, shape.width};
}

Buffer Transformer::encoder_states(const Sources& sources, ThreadTeam& team) const {
    SequencePass pass(*this, {sources.lengths.begin(), sources.lengths.end()}, team);
    embed_sources(*this, sources, pass.x());
    for (std::size_t layer = 0; layer < encoder.size(); ++layer) pass.encode(encoder[layer], quantized_encoder[layer]);
    if (shape.pre_norm) encoder_norm.apply(pass.x(), pass.rows(), pass.x());
    return std::move(pass).states();
}

CrossCache Transformer::allocate_cross_cache(const Sources& sources) const {
    std::size_t num_floats = 0;
    for (const std::int64_t length : sources.lengths) num_floats += cross_cache_size(static_cast<std::size_t>(length), shape.width);
    return {std::vector<std::vector<KeyValues>>(decoder.size()), Buffer(num_floats * decoder.size())};
}

void Transformer::project_memory(const Sources& sources, const float* states, std::size_t layer, CrossCache& cross_cache) const {
    const std::size_t width = shape.width;
    Buffer projected;
    QuantizedRows scratch;
    float* next = cross_cache.floats.data() + layer * (cross_cache.floats.size() / decoder.size());
    // One sentence at a time: the projection stays in a near cache, its rows for all sentences would not.
    for (const std::int64_t source_length : sources.lengths) {
        const auto length = static_cast<std::size_t>(source_length);
        projected.reserve(length * 2 * width);
        gemm(decoder[layer].cross_projection, quantized_decoder[layer].cross_projection, states, length, projected.data(),
             Epilogue::STORE, scratch);
        float *keys = next, *values = next + padded_length(length) * width;
        pack_keys_values(projected.data(), 2 * width, 0, length, length, width, keys, values);
        cross_cache.layers[layer].push_back({length, padded_length(length), keys, values});
        states += length * width, next += cross_cache_size(length, width);
    }
}

CrossCache Transformer::cross_cache(const Sources& sources, const float* states, ThreadTeam& team) const {
    CrossCache cross_cache = allocate_cross_cache(sources);
    team.run(decoder.size(), [&](std::size_t layer, int) { project_memory(sources, states, layer, cross_cache); });
    return cross_cache;
}

}  // namespace fewstep
