#include "csrc/inference/network/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "csrc/inference/network/sequence_pass.h"

namespace fewstep {

namespace {

// Reads weights by name.
struct Reader {
    const TransformerShape& shape;
    const Arrays& arrays;

    PackedMatrix matrix(const std::string& name, std::size_t outputs, std::size_t inputs) const {
        return {arrays.at(name + ".weight"), arrays.at(name + ".bias"), outputs, inputs};
    }
    Norm norm(const std::string& name) const { return {arrays.at(name + ".weight"), arrays.at(name + ".bias"), shape.width}; }
    FeedForward feed_forward(const std::string& layer) const {
        return {matrix(layer + "feed_forward.widen", shape.inner, shape.width), matrix(layer + "feed_forward.narrow", shape.width, shape.inner),
                norm(layer + "feed_forward_residual.norm"), shape.gelu ? Then::GELU : Then::RELU};
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
        const auto found = arrays.find(name);
        if (found == arrays.end()) return {};
        return {found->second, found->second + rows * shape.width};
    }
};

// Embedded sources, sentence after sentence, [rows,D].
void embed_sources(const Transformer& model, const Sources& sources, float* x) {
    const std::size_t width = model.shape.width;
    const auto& table = model.source_words.empty() ? model.target_words : model.source_words;
    const float scale = std::sqrt(static_cast<float>(width));
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence)
        for (std::int64_t place = 0; place < sources.lengths[sentence]; ++place) {
            const auto word = static_cast<std::size_t>(sources.ids[sources.rows[sentence] * sources.stride + static_cast<std::size_t>(place)]);
            const float* vector = table.data() + word * width;
            const float* code = model.source_positions.data() + static_cast<std::size_t>(place) * width;
            for (std::size_t unit = 0; unit < width; ++unit) *x++ = vector[unit] * scale + code[unit];
        }
}

std::size_t memory_size(std::size_t length, std::size_t width) { return (room_for(length) + length) * width; }

}  // namespace

Transformer::Transformer(const TransformerShape& given, const Arrays& arrays)
    : shape(given), heads{given.heads, given.width / given.heads}, narrow_encoder(given.encoder_layers), narrow_decoder(given.decoder_layers) {
    const Reader read{shape, arrays};
    for (std::size_t layer = 0; layer < shape.encoder_layers; ++layer)
        encoder.push_back(read.encoder_layer("encoder.layers." + std::to_string(layer) + "."));
    for (std::size_t layer = 0; layer < shape.decoder_layers; ++layer)
        decoder.push_back(read.decoder_layer("decoder.layers." + std::to_string(layer) + "."));
    if (shape.pre_norm) encoder_norm = read.norm("encoder.norm"), decoder_norm = read.norm("decoder.norm");
    source_words = read.table("source_embedding", shape.source_words);
    target_words = read.table("target_embedding", shape.target_words);
    source_positions = read.table("source_positions", shape.source_positions);
    slot_codes = read.table("slot_codes", shape.slots);
    vocabulary = {target_words.data(), nullptr, shape.target_words, shape.width};
}

void Transformer::narrow(Precision precision) {
    for (std::size_t layer = 0; layer < encoder.size(); ++layer) narrow_encoder[layer] = NarrowLayer(encoder[layer], precision);
    for (std::size_t layer = 0; layer < decoder.size(); ++layer) narrow_decoder[layer] = NarrowLayer(decoder[layer], precision);
    narrow_vocabulary = NarrowMatrix(vocabulary, precision == Precision::BYTES ? precision : Precision::FLOATS);
    if (precision == Precision::BYTES && !lexicon.common_words.empty()) lexicon.narrow(vocabulary);
}

Buffer Transformer::encoded(const Sources& sources, Team& team) const {
    SequencePass pass(*this, {sources.lengths.begin(), sources.lengths.end()}, team);
    embed_sources(*this, sources, pass.x());
    for (std::size_t layer = 0; layer < encoder.size(); ++layer) pass.encode(encoder[layer], narrow_encoder[layer]);
    if (shape.pre_norm) encoder_norm.apply(pass.x(), pass.rows(), pass.x());
    return std::move(pass).states();
}

Memory Transformer::room(const Sources& sources) const {
    std::size_t whole = 0;
    for (const std::int64_t length : sources.lengths) whole += memory_size(static_cast<std::size_t>(length), shape.width);
    return {std::vector<std::vector<Sequence>>(decoder.size()), Buffer(whole * decoder.size())};
}

void Transformer::remember(const Sources& sources, const float* states, std::size_t layer, Memory& memory) const {
    const std::size_t width = shape.width;
    const auto rows = static_cast<std::size_t>(std::accumulate(sources.lengths.begin(), sources.lengths.end(), std::int64_t{0}));
    Buffer wide(rows * 2 * width);
    NarrowRows scratch;
    product(decoder[layer].cross_projection, narrow_decoder[layer].cross_projection, states, rows, wide.data(), Then::STORE, scratch);
    const float* first = wide.data();
    float* free = memory.floats.data() + layer * (memory.floats.size() / decoder.size());
    for (const std::int64_t some : sources.lengths) {
        const auto length = static_cast<std::size_t>(some);
        const std::size_t room = room_for(length);
        float *keys = free, *values = free + room * width;
        lay_out(first, 2 * width, 0, length, length, width, keys, values);
        memory.layers[layer].push_back({length, room, keys, values});
        first += length * 2 * width, free += memory_size(length, width);
    }
}

Memory Transformer::memory(const Sources& sources, const float* states, Team& team) const {
    Memory memory = room(sources);
    team.run(decoder.size(), [&](std::size_t layer, int) { remember(sources, states, layer, memory); });
    return memory;
}

}  // namespace fewstep
