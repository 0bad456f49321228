#include "csrc/inference/network/block_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fewstep {

namespace {

constexpr std::size_t LEAST_ROWS = 3;  // of a part: with fewer, weights are read for too little

std::size_t wanted_of(std::span<const Block> blocks) {
    std::size_t rows = 0;
    for (const Block& block : blocks) rows += block.wanted;
    return rows;
}

}  // namespace

BlockDecoding::BlockDecoding(const Transformer& model, Memory memory, const std::vector<std::int64_t>& slots, Sight sight,
                             bool codes_in_layers, std::span<const NarrowLayer> narrow, Team& team)
    : model_(model), memory_(std::move(memory)), sight_(sight), codes_in_layers_(codes_in_layers), narrow_(narrow), team_(team),
      width_(model.shape.width), wide_width_(std::max(3 * model.shape.width, model.shape.inner)) {
    for (int thread = 0; thread < team.threads(); ++thread) spaces_.push_back({Attention(model.heads), {}, {}});
    for (const std::int64_t count : slots) {
        starts_.push_back(slots_);
        slots_ += static_cast<std::size_t>(count);
    }
    keys_and_values_.reserve(std::max<std::size_t>(1, model.decoder.size() * slots_ * 2 * width_));
}

float* BlockDecoding::inputs(std::size_t rows) {
    x_.reserve(rows * width_), normed_.reserve(rows * width_), mixed_.reserve(rows * width_);
    wide_.reserve(rows * wide_width_);
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
    const Part whole{blocks, rows, x_.data(), normed_.data(), mixed_.data(), wide_.data(), spaces_[0], team_};
    // Causal rows of one sentence go through the rest of a layer in parts: one meeting of the threads instead of one a product.
    const bool parted = blocks.size() == 1 && sight_ == Sight::CAUSAL && blocks[0].wanted == rows;
    const std::size_t parts = parted ? std::clamp<std::size_t>(rows / LEAST_ROWS, 1, spaces_.size()) : 1;
    for (std::size_t layer = 0; layer < model_.decoder.size(); ++layer) {
        if (codes_in_layers_ && layer > 0) add_codes(blocks);
        project(layer, whole);
        if (parts == 1) {
            rows = finish(layer, whole);
            continue;
        }
        team_.run(parts, [&](std::size_t part, int thread) {
            const std::size_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
            const Block block{blocks[0].sentence, blocks[0].first + first, count, count};
            finish(layer, {{&block, 1}, count, x_.data() + first * width_, normed_.data() + first * width_, mixed_.data() + first * width_,
                           wide_.data() + first * wide_width_, spaces_[static_cast<std::size_t>(thread)], Team::alone()});
        });
    }
    if (model_.shape.pre_norm) model_.decoder_norm.apply(x_.data(), rows, x_.data());
    return x_.data();
}

void BlockDecoding::project(std::size_t index, const Part& part) {
    const DecoderLayer& layer = model_.decoder[index];
    const bool pre_norm = model_.shape.pre_norm;
    if (pre_norm) layer.norm.apply(part.x, part.rows, part.normed);
    multiply(layer.projection, &NarrowLayer::projection, index, part, pre_norm ? part.normed : part.x, part.wide, wide_width_, Then::STORE);
    keep(index, part);
}

std::size_t BlockDecoding::finish(std::size_t index, const Part& given) {
    const DecoderLayer& layer = model_.decoder[index];
    const bool pre_norm = model_.shape.pre_norm, last = index + 1 == model_.decoder.size();
    attend_to_slots(index, given, last);
    Part part = given;
    if (last) {
        drop_unwanted(part);
        part.rows = wanted_of(part.blocks);
    }
    multiply(layer.output, &NarrowLayer::output, index, part, part.mixed, part.x, width_, Then::ADD);
    if (!pre_norm) layer.norm.apply(part.x, part.rows, part.x);
    residual(layer.cross_norm, pre_norm, part.x, part.rows, part.normed, [&](const float* input) {
        multiply(layer.cross_queries, &NarrowLayer::cross_queries, index, part, input, part.wide, width_, Then::STORE);
        attend_to_source(index, part, last);
        multiply(layer.cross_output, &NarrowLayer::cross_output, index, part, part.mixed, part.x, width_, Then::ADD);
    });
    const FeedForward& block = layer.feed_forward;
    residual(block.norm, pre_norm, part.x, part.rows, part.normed, [&](const float* input) {
        const std::size_t inner = block.widen.outputs();
        multiply(block.widen, &NarrowLayer::widen, index, part, input, part.wide, inner, block.activation);
        multiply(block.narrow, &NarrowLayer::narrow, index, part, part.wide, part.x, width_, Then::ADD);
    });
    return part.rows;
}

void BlockDecoding::multiply(const PackedMatrix& matrix, const NarrowMatrix NarrowLayer::*narrow, std::size_t layer, const Part& part,
                             const float* x, float* y, std::size_t y_stride, Then then) {
    (narrow_[layer].*narrow).multiply(matrix, x, part.rows, y, y_stride, then, part.space.scratch, part.team);
}

void BlockDecoding::add_codes(std::span<const Block> blocks) {
    float* x = x_.data();
    for (const Block& block : blocks) {
        const float* codes = model_.slot_codes.data() + block.first * width_;
        for (std::size_t unit = 0; unit < block.count * width_; ++unit) x[unit] += codes[unit];
        x += block.count * width_;
    }
}

void BlockDecoding::keep(std::size_t layer, const Part& part) {
    const float* wide = part.wide;
    for (const Block& block : part.blocks) {
        float* at = kept(layer, block.sentence) + block.first * 2 * width_;
        for (std::size_t slot = 0; slot < block.count; ++slot, at += 2 * width_, wide += wide_width_) std::copy_n(wide + width_, 2 * width_, at);
    }
}

// Query by query, each over just the slots that it sees: what it sums, and in which order, does not depend on what came with it.
void BlockDecoding::attend_to_slots(std::size_t layer, const Part& part, bool last) {
    const float* queries = part.wide;
    float* mixed = part.mixed;
    std::vector<const float*>& seen = part.space.seen;
    for (const Block& block : part.blocks) {
        const float* at = kept(layer, block.sentence);
        const std::size_t end = block.first + block.count, wanted = end - block.wanted;
        seen.clear();
        for (std::size_t slot = block.first; slot < end; ++slot, queries += wide_width_) {
            if (last && slot < wanted) continue;
            const bool all = sight_ == Sight::ALL || (sight_ == Sight::PREFIX && slot >= wanted);
            const std::size_t sees = all ? end : slot + 1;
            for (std::size_t other = seen.size(); other < sees; ++other) seen.push_back(at + other * 2 * width_);
            part.space.attention.attend(queries, wide_width_, 1, seen, {}, mixed);
            mixed += width_;
        }
    }
}

void BlockDecoding::attend_to_source(std::size_t layer, const Part& part, bool last) {
    std::size_t row = 0;
    for (const Block& block : part.blocks) {
        const std::size_t count = last ? block.wanted : block.count;
        part.space.attention.attend(part.wide + row * width_, width_, count, memory_.layers[layer][block.sentence], part.mixed + row * width_);
        row += count;
    }
}

// Of the residual stream only the slots whose states are wanted go on.
void BlockDecoding::drop_unwanted(const Part& part) {
    const float* from = part.x;
    float* to = part.x;
    for (const Block& block : part.blocks) {
        from += (block.count - block.wanted) * width_;
        if (from != to) std::copy_n(from, block.wanted * width_, to);
        from += block.wanted * width_, to += block.wanted * width_;
    }
}

}  // namespace fewstep
