#include "csrc/inference/network/block_decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fewstep {

namespace {

constexpr std::size_t MIN_ROWS_PER_PART = 3;  // with fewer rows, loading the weights dominates

std::size_t count_outputs(std::span<const Block> blocks) {
    std::size_t rows = 0;
    for (const Block& block : blocks) rows += block.num_outputs;
    return rows;
}

}  // namespace

BlockDecoder::BlockDecoder(const Transformer& model, CrossCache cross_cache, const std::vector<std::int64_t>& slots, Sight sight,
                           bool codes_in_layers, std::span<const QuantizedLayer> quantized, ThreadTeam& team)
    : model_(model),
      cross_cache_(std::move(cross_cache)),
      sight_(sight),
      codes_in_layers_(codes_in_layers),
      quantized_(quantized),
      team_(team),
      width_(model.shape.width),
      wide_width_(std::max(3 * model.shape.width, model.shape.inner)) {
    for (int thread = 0; thread < team.threads(); ++thread) workspaces_.push_back({Attention(model.heads), {}, {}});
    for (const std::int64_t count : slots) {
        starts_.push_back(slots_);
        slots_ += static_cast<std::size_t>(count);
    }
    keys_and_values_.reserve(std::max<std::size_t>(1, model.decoder.size() * slots_ * 2 * width_));
}

float* BlockDecoder::inputs(std::size_t rows) {
    x_.reserve(rows * width_), normed_.reserve(rows * width_), mixed_.reserve(rows * width_);
    wide_.reserve(rows * wide_width_);
    return x_.data();
}

void BlockDecoder::embed(std::int64_t token, std::size_t slot, float* x) const {
    const float* position_code = model_.slot_codes.data() + slot * width_;
    if (token < 0) {
        std::copy_n(position_code, width_, x);
        return;
    }
    const float scale = model_.shape.embedding_scale();
    const float* embedding = model_.target_embedding.data() + static_cast<std::size_t>(token) * width_;
    for (std::size_t unit = 0; unit < width_; ++unit) x[unit] = embedding[unit] * scale + position_code[unit];
}

void BlockDecoder::add_embedding(std::int64_t token, float* x) const {
    const float scale = model_.shape.embedding_scale();
    const float* embedding = model_.target_embedding.data() + static_cast<std::size_t>(token) * width_;
    for (std::size_t unit = 0; unit < width_; ++unit) x[unit] += embedding[unit] * scale;
}

const float* BlockDecoder::states(std::span<const Block> blocks) {
    std::size_t rows = 0;
    for (const Block& block : blocks) rows += block.count;
    const Part whole{blocks, rows, x_.data(), normed_.data(), mixed_.data(), wide_.data(), workspaces_[0], team_};
    // The causal rows of one sentence pass through the rest of a layer in parts: the threads synchronise once a layer instead of
    // once a product.
    const bool parted = blocks.size() == 1 && blocks[0].parents.empty() && sight_ == Sight::CAUSAL && blocks[0].num_outputs == rows;
    const std::size_t parts = parted ? std::clamp<std::size_t>(rows / MIN_ROWS_PER_PART, 1, workspaces_.size()) : 1;
    for (std::size_t layer = 0; layer < model_.decoder.size(); ++layer) {
        if (codes_in_layers_ && layer > 0) add_codes(blocks);
        project(layer, whole);
        if (parts == 1) {
            rows = finish_layer(layer, whole);
            continue;
        }
        team_.run(parts, [&](std::size_t part, int thread) {
            const std::size_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
            const Block block{blocks[0].sentence, blocks[0].first + first, count, count};
            finish_layer(layer, {{&block, 1},
                                 count,
                                 x_.data() + first * width_,
                                 normed_.data() + first * width_,
                                 mixed_.data() + first * width_,
                                 wide_.data() + first * wide_width_,
                                 workspaces_[static_cast<std::size_t>(thread)],
                                 ThreadTeam::single()});
        });
    }
    if (model_.shape.pre_norm) model_.decoder_norm.apply(x_.data(), rows, x_.data());
    return x_.data();
}

void BlockDecoder::project(std::size_t index, const Part& part) {
    const DecoderLayer& layer = model_.decoder[index];
    const bool pre_norm = model_.shape.pre_norm;
    if (pre_norm) layer.norm.apply(part.x, part.rows, part.normed);
    multiply(layer.projection, &QuantizedLayer::projection, index, part, pre_norm ? part.normed : part.x, part.wide, wide_width_,
             Epilogue::STORE);
    cache_keys_values(index, part);
}

std::size_t BlockDecoder::finish_layer(std::size_t index, const Part& input_part) {
    const DecoderLayer& layer = model_.decoder[index];
    const bool pre_norm = model_.shape.pre_norm, last = index + 1 == model_.decoder.size();
    attend_to_slots(index, input_part, last);
    Part part = input_part;
    if (last) {
        keep_output_rows(part);
        part.rows = count_outputs(part.blocks);
    }
    multiply(layer.output, &QuantizedLayer::output, index, part, part.mixed, part.x, width_, Epilogue::ADD);
    if (!pre_norm) layer.norm.apply(part.x, part.rows, part.x);
    residual(layer.cross_norm, pre_norm, part.x, part.rows, part.normed, [&](const float* input) {
        multiply(layer.cross_queries, &QuantizedLayer::cross_queries, index, part, input, part.wide, width_, Epilogue::STORE);
        attend_to_source(index, part, last);
        multiply(layer.cross_output, &QuantizedLayer::cross_output, index, part, part.mixed, part.x, width_, Epilogue::ADD);
    });
    const FeedForward& block = layer.feed_forward;
    residual(block.norm, pre_norm, part.x, part.rows, part.normed, [&](const float* input) {
        const std::size_t inner = block.widen.outputs();
        multiply(block.widen, &QuantizedLayer::widen, index, part, input, part.wide, inner, block.activation);
        multiply(block.narrow, &QuantizedLayer::narrow, index, part, part.wide, part.x, width_, Epilogue::ADD);
    });
    return part.rows;
}

void BlockDecoder::multiply(const PackedMatrix& matrix, const QuantizedMatrix QuantizedLayer::* quantized, std::size_t layer,
                            const Part& part, const float* x, float* y, std::size_t y_stride, Epilogue epilogue) {
    (quantized_[layer].*quantized).multiply(matrix, x, part.rows, y, y_stride, epilogue, part.workspace.scratch, part.team);
}

void BlockDecoder::add_codes(std::span<const Block> blocks) {
    float* x = x_.data();
    for (const Block& block : blocks) {
        const float* codes = model_.slot_codes.data() + block.first * width_;
        for (std::size_t unit = 0; unit < block.count * width_; ++unit) x[unit] += codes[unit];
        x += block.count * width_;
    }
}

void BlockDecoder::cache_keys_values(std::size_t layer, const Part& part) {
    const float* wide = part.wide;
    for (const Block& block : part.blocks) {
        float* cache = cached(layer, block.sentence) + (block.first + block.num_cached) * 2 * width_;
        for (std::size_t slot = 0; slot < block.count; ++slot, cache += 2 * width_, wide += wide_width_)
            std::copy_n(wide + width_, 2 * width_, cache);
    }
}

void BlockDecoder::keep_path(std::size_t sentence, std::size_t first, std::span<const std::size_t> path) {
    for (std::size_t layer = 0; layer < model_.decoder.size(); ++layer) {
        float* cache = cached(layer, sentence) + first * 2 * width_;
        for (std::size_t position = 0; position < path.size(); ++position)  // a row never moves behind its place
            if (path[position] != position)
                std::copy_n(cache + path[position] * 2 * width_, 2 * width_, cache + position * 2 * width_);
    }
}

// The rows of a tree see their own paths in order, so their sums are those of the path alone.
void BlockDecoder::attend_to_tree(const Block& block, const Part& part, const float* cache, const float* queries, float* mixed) {
    std::vector<const float*>& visible_slots = part.workspace.visible_slots;
    std::vector<std::size_t> path;
    for (std::size_t row = 0; row < block.count; ++row) {
        path.assign(1, block.num_cached + row);
        while (path.back() > 0) path.push_back(block.parents[path.back() - 1]);
        visible_slots.clear();
        for (std::size_t slot = 0; slot < block.first; ++slot) visible_slots.push_back(cache + slot * 2 * width_);
        for (std::size_t above = path.size(); above-- > 0;)
            visible_slots.push_back(cache + (block.first + path[above]) * 2 * width_);
        part.workspace.attention.attend(queries + row * wide_width_, wide_width_, 1, visible_slots, {}, mixed + row * width_);
    }
}

// Each query attends only to its visible slots, so its sums and their order do not depend on the other queries.
void BlockDecoder::attend_to_slots(std::size_t layer, const Part& part, bool last) {
    const float* queries = part.wide;
    float* mixed = part.mixed;
    std::vector<const float*>& visible_slots = part.workspace.visible_slots;
    for (const Block& block : part.blocks) {
        const float* cache = cached(layer, block.sentence);
        if (!block.parents.empty()) {
            attend_to_tree(block, part, cache, queries, mixed);
            queries += block.count * wide_width_, mixed += block.count * width_;
            continue;
        }
        const std::size_t end = block.first + block.count, num_outputs = end - block.num_outputs;
        visible_slots.clear();
        for (std::size_t slot = block.first; slot < end; ++slot, queries += wide_width_) {
            if (last && slot < num_outputs) continue;
            const bool all = sight_ == Sight::ALL || (sight_ == Sight::PREFIX && slot >= num_outputs);
            const std::size_t num_visible = all ? end : slot + 1;
            for (std::size_t other = visible_slots.size(); other < num_visible; ++other)
                visible_slots.push_back(cache + other * 2 * width_);
            part.workspace.attention.attend(queries, wide_width_, 1, visible_slots, {}, mixed);
            mixed += width_;
        }
    }
}

void BlockDecoder::attend_to_source(std::size_t layer, const Part& part, bool last) {
    std::size_t row = 0;
    for (const Block& block : part.blocks) {
        const std::size_t count = last ? block.num_outputs : block.count;
        part.workspace.attention.attend(part.wide + row * width_, width_, count, cross_cache_.layers[layer][block.sentence],
                                        part.mixed + row * width_);
        row += count;
    }
}

// Keep only the output slots in the residual stream.
void BlockDecoder::keep_output_rows(const Part& part) {
    const float* from = part.x;
    float* to = part.x;
    for (const Block& block : part.blocks) {
        from += (block.count - block.num_outputs) * width_;
        if (from != to) std::copy_n(from, block.num_outputs * width_, to);
        from += block.num_outputs * width_, to += block.num_outputs * width_;
    }
}

}  // namespace fewstep
