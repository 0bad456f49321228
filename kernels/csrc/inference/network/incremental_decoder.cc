#include "csrc/inference/network/incremental_decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fewstep {

Decoding::Decoding(const Transformer& model, const SlotRules& rules, const Sources& sources, Team& team)
    : model_(model), rules_(rules), team_(team), memory_(model.encode(sources, team)), sentences_(sources.rows.size()), counts_(sources.rows.size(), 1),
      ancestors_(sources.rows.size()), attention_(model.heads) {
    std::iota(sentences_.begin(), sentences_.end(), std::size_t{0});
}

const float* Decoding::step(std::span<const std::int64_t> tokens) {
    const std::size_t count = rows() * rules_.step_size, width = model_.shape.width;
    x_.reserve(count * width), normed_.reserve(count * width), mixed_.reserve(count * width);
    wide_.reserve(count * std::max(3 * width, model_.shape.inner));
    embed(tokens);
    steps_.emplace_back(model_.decoder.size() * count * 2 * width);
    step_rows_.push_back(rows());
    for (std::size_t row = 0; row < rows(); ++row) ancestors_[row].push_back(static_cast<std::uint32_t>(row));
    look_up_mask();
    float* x = x_.data();
    const bool pre_norm = model_.shape.pre_norm;
    for (std::size_t index = 0; index < model_.decoder.size(); ++index) {
        const DecoderLayer& layer = model_.decoder[index];
        const NarrowLayer& narrow = model_.narrow_decoder[index];
        const auto multiply = [&](const PackedMatrix& whole, const NarrowMatrix& few, const float* from, float* to, Then then) {
            product(whole, few, from, count, to, then, scratch_, team_);
        };
        residual(layer.norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(layer.projection, narrow.projection, input, wide_.data(), Then::STORE);
            attend_to_slots(index);
            multiply(layer.output, narrow.output, mixed_.data(), x, Then::ADD);
        });
        residual(layer.cross_norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(layer.cross_queries, narrow.cross_queries, input, wide_.data(), Then::STORE);
            attend_to_source(index);
            multiply(layer.cross_output, narrow.cross_output, mixed_.data(), x, Then::ADD);
        });
        const FeedForward& block = layer.feed_forward;
        residual(block.norm, pre_norm, x, count, normed_.data(), [&](const float* input) {
            multiply(block.widen, narrow.widen, input, wide_.data(), block.activation);
            multiply(block.narrow, narrow.narrow, wide_.data(), x, Then::ADD);
        });
    }
    if (pre_norm) model_.decoder_norm.apply(x, count, x);
    return x;
}

// Slots carry the tokens of the step before, those of the first step nothing.
void Decoding::embed(std::span<const std::int64_t> tokens) {
    const std::size_t width = model_.shape.width, size = rules_.step_size;
    const float scale = std::sqrt(static_cast<float>(width));
    float* x = x_.data();
    for (std::size_t place = 0; place < rows() * size; ++place, x += width) {
        const float* code = model_.slot_codes.data() + (steps_.size() * size + place % size) * width;
        if (tokens.empty()) {
            std::copy_n(code, width, x);
            continue;
        }
        const float* word = model_.target_words.data() + static_cast<std::size_t>(tokens[place]) * width;
        for (std::size_t unit = 0; unit < width; ++unit) x[unit] = word[unit] * scale + code[unit];
    }
}

void Decoding::attend_to_slots(std::size_t layer) {
    const std::size_t width = model_.shape.width, size = rules_.step_size, count = rows() * size;
    float* kept = steps_.back().data() + layer * count * 2 * width;
    for (std::size_t place = 0; place < count; ++place)
        std::copy_n(wide_.data() + place * 3 * width + width, 2 * width, kept + place * 2 * width);
    slots_.resize(steps_.size() * size);
    for (std::size_t row = 0; row < rows(); ++row) {
        for (std::size_t step = 0; step < steps_.size(); ++step) {
            const std::size_t place = (layer * step_rows_[step] + ancestors_[row][step]) * size;
            for (std::size_t slot = 0; slot < size; ++slot) slots_[step * size + slot] = steps_[step].data() + (place + slot) * 2 * width;
        }
        const std::size_t place = row * size;
        attention_.attend(wide_.data() + place * 3 * width, 3 * width, size, slots_, seen_, mixed_.data() + place * width);
    }
}

// [z,slots]; nothing where all are seen.
void Decoding::look_up_mask() {
    if (rules_.mask == SlotMask::BLOCK) return;
    const std::size_t size = rules_.step_size, slots = steps_.size() * size;
    seen_.resize(size * slots);
    for (std::size_t slot = 0; slot < size; ++slot)
        for (std::size_t other = 0; other < slots; ++other) {
            const std::size_t own = slots - size + slot;
            const bool causal = rules_.mask == SlotMask::CAUSAL;
            seen_[slot * slots + other] = causal ? other <= own : own % rules_.directions == other % rules_.directions;
        }
}

void Decoding::attend_to_source(std::size_t layer) {
    const std::size_t width = model_.shape.width;
    std::size_t first = 0;
    for (std::size_t place = 0; place < sentences_.size(); ++place) {
        const std::size_t together = counts_[place] * rules_.step_size;
        attention_.attend(wide_.data() + first, width, together, memory_.layers[layer][sentences_[place]], mixed_.data() + first);
        first += together * width;
    }
}

void Decoding::select(std::span<const std::int64_t> rows, std::span<const std::int64_t> going, std::span<const std::int64_t> counts) {
    std::vector<std::vector<std::uint32_t>> ancestors;
    ancestors.reserve(rows.size());
    for (const std::int64_t row : rows) ancestors.push_back(ancestors_[static_cast<std::size_t>(row)]);
    ancestors_ = std::move(ancestors);
    std::vector<std::size_t> sentences;
    for (const std::int64_t place : going) sentences.push_back(sentences_[static_cast<std::size_t>(place)]);
    sentences_ = std::move(sentences);
    counts_.assign(counts.begin(), counts.end());
}

}  // namespace fewstep
