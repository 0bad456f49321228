#include "csrc/inference/network/incremental_decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fewstep {

IncrementalDecoder::IncrementalDecoder(const Transformer& model, const SlotRules& rules, const Sources& sources, ThreadTeam& team)
    : model_(model),
      rules_(rules),
      team_(team),
      cross_cache_(model.encode(sources, team)),
      sentences_(sources.rows.size()),
      counts_(sources.rows.size(), 1),
      ancestors_(sources.rows.size()),
      attention_(model.heads) {
    std::iota(sentences_.begin(), sentences_.end(), std::size_t{0});
}

const float* IncrementalDecoder::step(std::span<const std::int64_t> tokens) {
    const std::size_t count = rows() * rules_.step_size, width = model_.shape.width;
    x_.reserve(count * width), normed_.reserve(count * width), mixed_.reserve(count * width);
    wide_.reserve(count * std::max(3 * width, model_.shape.inner));
    embed(tokens);
    steps_.emplace_back(model_.decoder.size() * count * 2 * width);
    step_rows_.push_back(rows());
    for (std::size_t row = 0; row < rows(); ++row) ancestors_[row].push_back(static_cast<std::uint32_t>(row));
    update_mask();
    float* x = x_.data();
    const bool pre_norm = model_.shape.pre_norm;
    for (std::size_t index = 0; index < model_.decoder.size(); ++index) {
        const DecoderLayer& layer = model_.decoder[index];
        const QuantizedLayer& quantized = model_.quantized_decoder[index];
        const auto multiply = [&](const PackedMatrix& matrix, const QuantizedMatrix& quantized_matrix, const float* from, float* to,
                                  Epilogue epilogue) {
            gemm(matrix, quantized_matrix, from, count, to, epilogue, scratch_, team_);
        };
        residual(layer.norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(layer.projection, quantized.projection, input, wide_.data(), Epilogue::STORE);
            attend_to_slots(index);
            multiply(layer.output, quantized.output, mixed_.data(), x, Epilogue::ADD);
        });
        residual(layer.cross_norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(layer.cross_queries, quantized.cross_queries, input, wide_.data(), Epilogue::STORE);
            attend_to_source(index);
            multiply(layer.cross_output, quantized.cross_output, mixed_.data(), x, Epilogue::ADD);
        });
        const FeedForward& block = layer.feed_forward;
        residual(block.norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(block.widen, quantized.widen, input, wide_.data(), block.activation);
            multiply(block.narrow, quantized.narrow, wide_.data(), x, Epilogue::ADD);
        });
    }
    if (pre_norm) model_.decoder_norm.apply(x, count, x);
    return x;
}

// The input of a slot is the token of the same slot of the previous step, and only the position code in the first step.
void IncrementalDecoder::embed(std::span<const std::int64_t> tokens) {
    const std::size_t width = model_.shape.width, size = rules_.step_size;
    const float scale = model_.shape.embedding_scale();
    float* x = x_.data();
    for (std::size_t position = 0; position < rows() * size; ++position, x += width) {
        const float* code = model_.slot_codes.data() + (steps_.size() * size + position % size) * width;
        if (tokens.empty()) {
            std::copy_n(code, width, x);
            continue;
        }
        const float* embedding = model_.target_embedding.data() + static_cast<std::size_t>(tokens[position]) * width;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = embedding[unit] * scale + code[unit];
    }
}

void IncrementalDecoder::attend_to_slots(std::size_t layer) {
    const std::size_t width = model_.shape.width, size = rules_.step_size, count = rows() * size;
    float* step_cache = steps_.back().data() + layer * count * 2 * width;
    for (std::size_t position = 0; position < count; ++position)
        std::copy_n(wide_.data() + position * 3 * width + width, 2 * width, step_cache + position * 2 * width);
    slots_.resize(steps_.size() * size);
    for (std::size_t row = 0; row < rows(); ++row) {
        for (std::size_t step = 0; step < steps_.size(); ++step) {
            const std::size_t position = (layer * step_rows_[step] + ancestors_[row][step]) * size;
            for (std::size_t slot = 0; slot < size; ++slot)
                slots_[step * size + slot] = steps_[step].data() + (position + slot) * 2 * width;
        }
        const std::size_t position = row * size;
        attention_.attend(wide_.data() + position * 3 * width, 3 * width, size, slots_, visible_, mixed_.data() + position * width);
    }
}

// The mask [z,slots], empty if all slots are visible.
void IncrementalDecoder::update_mask() {
    if (rules_.mask == SlotMask::BLOCK) return;
    const std::size_t size = rules_.step_size, slots = steps_.size() * size;
    visible_.resize(size * slots);
    for (std::size_t slot = 0; slot < size; ++slot)
        for (std::size_t key_slot = 0; key_slot < slots; ++key_slot) {
            const std::size_t query_slot = slots - size + slot;
            const bool causal = rules_.mask == SlotMask::CAUSAL;
            visible_[slot * slots + key_slot] =
                causal ? key_slot <= query_slot : query_slot % rules_.directions == key_slot % rules_.directions;
        }
}

void IncrementalDecoder::attend_to_source(std::size_t layer) {
    const std::size_t width = model_.shape.width;
    std::size_t first = 0;
    for (std::size_t position = 0; position < sentences_.size(); ++position) {
        const std::size_t num_queries = counts_[position] * rules_.step_size;
        attention_.attend(wide_.data() + first, width, num_queries, cross_cache_.layers[layer][sentences_[position]],
                          mixed_.data() + first);
        first += num_queries * width;
    }
}

void IncrementalDecoder::select_rows(std::span<const std::int64_t> rows, std::span<const std::int64_t> active,
                                     std::span<const std::int64_t> counts) {
    std::vector<std::vector<std::uint32_t>> ancestors;
    ancestors.reserve(rows.size());
    for (const std::int64_t row : rows) ancestors.push_back(ancestors_[static_cast<std::size_t>(row)]);
    ancestors_ = std::move(ancestors);
    std::vector<std::size_t> sentences;
    for (const std::int64_t position : active) sentences.push_back(sentences_[static_cast<std::size_t>(position)]);
    sentences_ = std::move(sentences);
    counts_.assign(counts.begin(), counts.end());
}

}  // namespace fewstep
