#include "csrc/network/block_decoding.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fewstep {

BlockDecoding::BlockDecoding(const Transformer& model, Memory memory, const std::vector<std::int64_t>& slots, Sight sight,
                             bool codes_in_layers, std::span<const ByteLayer> bytes, Team& team)
    : model_(model), memory_(std::move(memory)), sight_(sight), codes_in_layers_(codes_in_layers), bytes_(bytes), team_(team),
      width_(model.shape.width), attention_(model.heads) {
    for (const std::int64_t count : slots) {
        starts_.push_back(slots_);
        slots_ += static_cast<std::size_t>(count);
    }
    keys_and_values_.reserve(std::max<std::size_t>(1, model.decoder.size() * slots_ * 2 * width_));
}

float* BlockDecoding::inputs(std::size_t rows) {
    x_.reserve(rows * width_), normed_.reserve(rows * width_), mixed_.reserve(rows * width_);
    wide_.reserve(rows * std::max(3 * width_, model_.shape.inner));
    return x_.data();
}

void BlockDecoding::embed(std::int64_t word, std::size_t slot, float* x) const {
    const float* code = model_.slot_codes.data() + slot * width_;
    if (word < 0) {
        std::copy_n(code, width_, x);
        return;
    }
    const float scale = std::sqrt(static_cast<float>(width_));
    const float* vector = model_.target_words.data() + static_cast<std::size_t>(word) * width_;
    for (std::size_t unit = 0; unit < width_; ++unit) x[unit] = vector[unit] * scale + code[unit];
}

void BlockDecoding::add_word(std::int64_t word, float* x) const {
    const float scale = std::sqrt(static_cast<float>(width_));
    const float* vector = model_.target_words.data() + static_cast<std::size_t>(word) * width_;
    for (std::size_t unit = 0; unit < width_; ++unit) x[unit] += vector[unit] * scale;
}

const float* BlockDecoding::states(std::span<const Block> blocks) {
    std::size_t rows = 0;
    for (const Block& block : blocks) rows += block.count;
    const bool pre_norm = model_.shape.pre_norm;
    float* x = x_.data();
    for (std::size_t index = 0; index < model_.decoder.size(); ++index) {
        const DecoderLayer& layer = model_.decoder[index];
        const bool last = index + 1 == model_.decoder.size();
        if (codes_in_layers_ && index > 0) add_codes(blocks);
        if (pre_norm) layer.norm.apply(x, rows, normed_.data());
        multiply(layer.projection, &ByteLayer::projection, index, pre_norm ? normed_.data() : x, rows, wide_.data(), Then::STORE);
        keep(index, blocks);
        attend_to_slots(index, blocks, last);
        if (last) {
            drop_unwanted(blocks);
            rows = 0;
            for (const Block& block : blocks) rows += block.wanted;
        }
        multiply(layer.output, &ByteLayer::output, index, mixed_.data(), rows, x, Then::ADD);
        if (!pre_norm) layer.norm.apply(x, rows, x);
        residual(layer.cross_norm, pre_norm, x, rows, normed_.data(), [&](const float* input) {
            multiply(layer.cross_queries, &ByteLayer::cross_queries, index, input, rows, wide_.data(), Then::STORE);
            attend_to_source(index, blocks, last);
            multiply(layer.cross_output, &ByteLayer::cross_output, index, mixed_.data(), rows, x, Then::ADD);
        });
        const FeedForward& block = layer.feed_forward;
        residual(block.norm, pre_norm, x, rows, normed_.data(), [&](const float* input) {
            multiply(block.widen, &ByteLayer::widen, index, input, rows, wide_.data(), block.activation);
            multiply(block.narrow, &ByteLayer::narrow, index, wide_.data(), rows, x, Then::ADD);
        });
    }
    if (pre_norm) model_.decoder_norm.apply(x, rows, x);
    return x;
}

void BlockDecoding::multiply(const PackedMatrix& matrix, const ByteMatrix ByteLayer::*byte, std::size_t layer, const float* x, std::size_t rows,
                             float* y, Then then) {
    if (bytes_.empty()) return matrix.multiply(x, matrix.inputs(), rows, y, matrix.outputs(), then, team_);
    (bytes_[layer].*byte).multiply(x, matrix.inputs(), rows, y, matrix.outputs(), then, values_);
}

void BlockDecoding::add_codes(std::span<const Block> blocks) {
    float* x = x_.data();
    for (const Block& block : blocks) {
        const float* codes = model_.slot_codes.data() + block.first * width_;
        for (std::size_t unit = 0; unit < block.count * width_; ++unit) x[unit] += codes[unit];
        x += block.count * width_;
    }
}

void BlockDecoding::keep(std::size_t layer, std::span<const Block> blocks) {
    const float* wide = wide_.data();
    for (const Block& block : blocks) {
        float* at = kept(layer, block.sentence) + block.first * 2 * width_;
        for (std::size_t slot = 0; slot < block.count; ++slot, at += 2 * width_, wide += 3 * width_)
            std::copy_n(wide + width_, 2 * width_, at);
    }
}

// Query by query, each over just the slots that it sees: what it sums, and in which order, does not depend on what came with it.
void BlockDecoding::attend_to_slots(std::size_t layer, std::span<const Block> blocks, bool last) {
    const float* queries = wide_.data();
    float* mixed = mixed_.data();
    for (const Block& block : blocks) {
        const float* at = kept(layer, block.sentence);
        const std::size_t end = block.first + block.count, wanted = end - block.wanted;
        seen_.clear();
        for (std::size_t slot = block.first; slot < end; ++slot, queries += 3 * width_) {
            if (last && slot < wanted) continue;
            const bool all = sight_ == Sight::ALL || (sight_ == Sight::PREFIX && slot >= wanted);
            const std::size_t seen = all ? end : slot + 1;
            for (std::size_t other = seen_.size(); other < seen; ++other) seen_.push_back(at + other * 2 * width_);
            attention_.attend(queries, 3 * width_, 1, seen_, {}, mixed);
            mixed += width_;
        }
    }
}

void BlockDecoding::attend_to_source(std::size_t layer, std::span<const Block> blocks, bool last) {
    std::size_t row = 0;
    for (const Block& block : blocks) {
        const std::size_t count = last ? block.wanted : block.count;
        attention_.attend(wide_.data() + row * width_, width_, count, memory_.layers[layer][block.sentence], mixed_.data() + row * width_);
        row += count;
    }
}

// Of the residual stream only the slots whose states are wanted go on.
void BlockDecoding::drop_unwanted(std::span<const Block> blocks) {
    const float* from = x_.data();
    float* to = x_.data();
    for (const Block& block : blocks) {
        from += (block.count - block.wanted) * width_;
        if (from != to) std::copy_n(from, block.wanted * width_, to);
        from += block.wanted * width_, to += block.wanted * width_;
    }
}

}  // namespace fewstep
