#include "csrc/inference/aggressive/drafters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace fewstep {

namespace {

std::span<const QuantizedLayer> layers(const Drafter& drafter, bool int8) {
    return int8 ? drafter.int8_layers : drafter.network.quantized_decoder;
}

}  // namespace

BlockDrafter::BlockDrafter(const Drafter& drafter, const Sources& sources, CrossCache cross_cache,
                           const std::vector<std::int64_t>& limits, bool int8, ThreadTeam& team)
    : drafter_(drafter),
      decoder_(drafter.network, std::move(cross_cache), limits, drafter.sight, drafter.codes_in_layers, layers(drafter, int8),
               team),
      prefix_cached_(drafter.sight == Sight::PREFIX || drafter.network.decoder.size() == 1),
      cached_slots_(limits.size()),
      source_copy_({1, drafter.network.shape.width}) {
    if (drafter.mask >= 0) return;
    const Transformer& model = drafter.network;
    const std::size_t width = model.shape.width;
    std::size_t num_floats = 0;
    for (const std::int64_t length : sources.lengths)
        num_floats += (padded_length(static_cast<std::size_t>(length)) + static_cast<std::size_t>(length)) * width;
    floats_.reserve(num_floats);
    const auto& table = model.source_embedding.empty() ? model.target_embedding : model.source_embedding;
    const float scale = model.shape.embedding_scale();
    float* next_row = floats_.data();
    std::vector<float> rows;
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence) {
        const auto length = static_cast<std::size_t>(sources.lengths[sentence]);
        rows.resize(length * 2 * width);
        for (std::size_t position = 0; position < length; ++position) {
            const auto token = static_cast<std::size_t>(sources.ids[sources.rows[sentence] * sources.stride + position]);
            float *key = rows.data() + position * 2 * width, *value = key + width;
            for (std::size_t unit = 0; unit < width; ++unit) {
                value[unit] = table[token * width + unit] * scale;
                key[unit] = value[unit] + model.source_positions[position * width + unit];
            }
        }
        const std::size_t padded = padded_length(length);
        pack_keys_values(rows.data(), 2 * width, 0, length, length, width, next_row, next_row + padded * width);
        source_embeddings_.push_back({length, padded, next_row, next_row + padded * width});
        next_row += (padded + length) * width;
    }
}

void BlockDrafter::embed_source_copy(const DraftRequest& request, std::size_t slot, float* x) {
    const std::size_t width = drafter_.network.shape.width;
    source_copy_.attend(drafter_.copy_queries.data() + slot * width, width, 1, source_embeddings_[request.sentence], x);
    const float* code = drafter_.network.slot_codes.data() + slot * width;
    for (std::size_t unit = 0; unit < width; ++unit) x[unit] += code[unit];
}

const float* BlockDrafter::states(std::span<const DraftRequest> requests) {
    blocks_.clear(), slots_.clear();
    std::size_t rows = 0;
    for (const DraftRequest& request : requests) {
        const auto prefix = request.prefix->size(),
                   first = static_cast<std::size_t>(prefix_cached_ ? cached_slots_[request.sentence] : 0);
        const auto width = static_cast<std::size_t>(request.width);
        blocks_.push_back({request.sentence, first, prefix + width - first, width});
        rows += blocks_.back().count;
    }
    const std::size_t size = drafter_.network.shape.width;
    float* x = decoder_.inputs(rows);
    for (std::size_t position = 0; position < requests.size(); ++position) {
        const DraftRequest& request = requests[position];
        const std::size_t prefix = request.prefix->size(), end = blocks_[position].first + blocks_[position].count;
        for (std::size_t slot = blocks_[position].first; slot < end; ++slot, x += size) {
            if (slot < prefix)
                decoder_.embed((*request.prefix)[slot], slot, x);
            else if (drafter_.mask >= 0)
                decoder_.embed(drafter_.mask, slot, x);
            else
                embed_source_copy(request, slot, x);
            if (slot >= prefix && prefix > 0 && drafter_.last_token) decoder_.add_embedding(request.prefix->back(), x);
            if (slot >= prefix) slots_.push_back(static_cast<std::int64_t>(slot));
        }
        cached_slots_[request.sentence] = static_cast<std::int64_t>(prefix);
    }
    return decoder_.states(blocks_);
}

AutoregressiveDrafter::AutoregressiveDrafter(const Drafter& drafter, CrossCache cross_cache,
                                             const std::vector<std::int64_t>& entries, bool int8, ThreadTeam& team)
    : drafter_(drafter),
      int8_(int8),
      team_(team),
      decoder_(drafter.network, std::move(cross_cache), entries, Sight::CAUSAL, false, layers(drafter, int8), team),
      width_(drafter.network.shape.width),
      cached_slots_(entries.size()) {
    for (const std::int64_t count : entries) {
        starts_.push_back(slots_);
        slots_ += static_cast<std::size_t>(count);
    }
    if (drafter.has_features()) features_.reserve(slots_ * width_);
}

void AutoregressiveDrafter::observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden) {
    // A slot was computed from the token before it and with features from that token's state, which has now changed.
    const std::size_t valid = first + (drafter_.has_features() ? 1 : count);
    cached_slots_[sentence] = std::min(cached_slots_[sentence], valid);
    if (drafter_.has_features()) std::copy_n(hidden, count * width_, feature(sentence, first));
}

void AutoregressiveDrafter::begin_inputs(std::size_t rows) {
    inputs_ = next_input_ = decoder_.inputs(rows);
    if (!drafter_.has_features()) return;
    input_features_.reserve(rows * width_);
    next_feature_ = input_features_.data();
}

void AutoregressiveDrafter::add_input(std::int64_t token, std::size_t slot, const float* origin) {
    decoder_.embed(token, slot, next_input_);
    next_input_ += width_;
    if (!drafter_.has_features()) return;
    if (origin == nullptr)
        std::fill_n(next_feature_, width_, 0.0F);
    else
        std::copy_n(origin, width_, next_feature_);
    next_feature_ += width_;
}

const float* AutoregressiveDrafter::run(std::size_t rows) {
    if (drafter_.has_features() && int8_)
        drafter_.int8_features.multiply(input_features_.data(), width_, rows, inputs_, width_, Epilogue::ADD, values_);
    else if (drafter_.has_features())
        drafter_.features.multiply(input_features_.data(), width_, rows, inputs_, width_, Epilogue::ADD, team_);
    return decoder_.states(blocks_);
}

const float* AutoregressiveDrafter::states(std::span<const DraftPosition> positions) {
    blocks_.clear();
    std::size_t rows = 0;
    for (const DraftPosition& next : positions) {
        const std::size_t first = cached_slots_[next.sentence];
        blocks_.push_back({next.sentence, first, next.slot() + 1 - first, 1});
        rows += blocks_.back().count;
    }
    begin_inputs(rows);
    for (std::size_t position = 0; position < positions.size(); ++position) {
        const auto& [sentence, prefix, drafted] = positions[position];
        for (std::size_t slot = blocks_[position].first; slot <= positions[position].slot(); ++slot) {
            if (slot == 0) {
                add_input(-1, slot, nullptr);
                continue;
            }
            const std::size_t before = slot - 1;
            add_input(before < prefix->size() ? (*prefix)[before] : (*drafted)[before - prefix->size()], slot,
                      feature(sentence, before));
        }
    }
    const float* hidden = run(rows);
    for (std::size_t position = 0; position < positions.size(); ++position) {
        const std::size_t sentence = positions[position].sentence, slot = positions[position].slot();
        if (drafter_.has_features()) std::copy_n(hidden + position * width_, width_, feature(sentence, slot));
        cached_slots_[sentence] = slot + 1;
    }
    return hidden;
}

// Node n has entry `prefix_size` + n of the cache and of the features, as in the cache of the decoder.
const float* AutoregressiveDrafter::states(std::span<const TreeLevel> levels) {
    blocks_.clear();
    std::size_t rows = 0;
    for (const TreeLevel& level : levels) {
        const std::size_t num_cached = 1 + level.tree->size() - level.count;
        blocks_.push_back({level.sentence, level.prefix_size, level.count, level.count, level.tree->parents, num_cached});
        rows += level.count;
    }
    begin_inputs(rows);
    for (const auto& [sentence, root, tree, count] : levels)
        for (std::size_t node = 1 + tree->size() - count; node <= tree->size(); ++node)
            add_input(tree->tokens[node - 1], root + tree->depth(node), feature(sentence, root + tree->parent(node)));
    const float* hidden = run(rows);
    if (!drafter_.has_features()) return hidden;
    const float* state = hidden;
    for (const auto& [sentence, root, tree, count] : levels) {
        std::copy_n(state, count * width_, feature(sentence, root + 1 + tree->size() - count));
        state += count * width_;
    }
    return hidden;
}

HeadDrafter::HeadDrafter(const Drafter& drafter, std::size_t sentences, ThreadTeam& team)
    : drafter_(drafter), team_(team), width_(drafter.network.shape.width) {
    last_states_.reserve(sentences * width_);
}

void HeadDrafter::observe(std::size_t sentence, const float* hidden) {
    std::copy_n(hidden, width_, last_states_.data() + sentence * width_);
}

const float* HeadDrafter::states(std::span<const DraftRequest> requests) {
    slots_.clear();
    const std::size_t outputs = drafter_.heads.outputs();
    inputs_.reserve(requests.size() * width_), residuals_.reserve(requests.size() * outputs);
    float* input = inputs_.data();
    for (const DraftRequest& request : requests) {
        std::copy_n(last_states_.data() + request.sentence * width_, width_, input);
        input += width_;
        for (std::int64_t offset = 0; offset < request.width; ++offset)
            slots_.push_back(static_cast<std::int64_t>(request.prefix->size()) + offset);
    }
    drafter_.heads.multiply(inputs_.data(), width_, requests.size(), residuals_.data(), outputs, Epilogue::SWISH, team_);
    hidden_.reserve(slots_.size() * width_);
    float* output = hidden_.data();
    for (std::size_t index = 0; index < requests.size(); ++index) {
        const float *state = inputs_.data() + index * width_, *residual = residuals_.data() + index * outputs;
        for (std::int64_t head = 0; head < requests[index].width; ++head)
            for (std::size_t unit = 0; unit < width_; ++unit) *output++ = state[unit] + *residual++;
    }
    return hidden_.data();
}

namespace {

// A text with bos in front.
struct WithBos {
    const std::vector<std::int64_t>& text;
    std::int64_t bos;

    std::int64_t size() const { return static_cast<std::int64_t>(text.size()) + 1; }
    std::int64_t operator[](std::int64_t position) const {
        return position == 0 ? bos : text[static_cast<std::size_t>(position) - 1];
    }
};

bool same_suffix(const WithBos& one, std::int64_t position, const WithBos& other, std::int64_t end, std::int64_t size) {
    if (position + 1 < size) return false;
    for (std::int64_t back = 0; back < size; ++back)
        if (one[position - back] != other[end - back]) return false;
    return true;
}

void copy_continuation(const WithBos& text, std::int64_t position, std::int64_t width, std::vector<std::int64_t>& draft) {
    for (std::int64_t next = position + 1; next < std::min(text.size(), position + 1 + width); ++next) draft.push_back(text[next]);
}

}  // namespace

void lookup_draft(const std::vector<std::int64_t>& hint, const std::vector<std::int64_t>& prefix, std::int64_t bos,
                  std::int64_t longest, std::int64_t width, std::vector<std::int64_t>& draft) {
    draft.clear();
    const WithBos before{prefix, bos}, other{hint, bos};
    const std::int64_t end = before.size() - 1;
    for (std::int64_t size = std::min(longest, before.size()); size >= 1; --size) {
        std::int64_t nearest = -1;
        for (std::int64_t position = 0; position + 1 < other.size(); ++position)
            if (same_suffix(other, position, before, end, size) &&
                (nearest < 0 || std::abs(position - end) < std::abs(nearest - end)))
                nearest = position;
        if (nearest >= 0) return copy_continuation(other, nearest, width, draft);
        for (std::int64_t position = end - 1; position >= 0; --position)
            if (same_suffix(before, position, before, end, size)) return copy_continuation(before, position, width, draft);
    }
}

}  // namespace fewstep
