#include "csrc/inference/parallel/network.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr double TOLERANCE = 1e-6;  // products of lengths and `upsampling` that are nearer to an integer are this integer

// round(slot (tokens - 1) / (size - 1)), half to even.
std::size_t uniform_token(std::size_t slot, std::size_t size, std::size_t tokens) {
    const std::size_t intervals = std::max<std::size_t>(size - 1, 1), product = slot * (tokens - 1);
    const std::size_t whole = product / intervals, twice = 2 * (product % intervals);
    return whole + (twice > intervals || (twice == intervals && whole % 2 == 1) ? 1 : 0);
}

// softmax_j(-(j - center)^2 scale / temperature)
void mix(double center, double scale, double temperature, std::size_t tokens, std::vector<SourceWeight>& weights) {
    double sum = 0.0, nearest = INFINITY;
    for (std::size_t token = 0; token < tokens; ++token)
        nearest = std::min(nearest, (static_cast<double>(token) - center) * (static_cast<double>(token) - center) * scale);
    std::vector<double> exponentials(tokens);
    for (std::size_t token = 0; token < tokens; ++token) {
        const double distance = (static_cast<double>(token) - center) * (static_cast<double>(token) - center) * scale;
        sum += exponentials[token] = std::exp((nearest - distance) / temperature);
    }
    for (std::size_t token = 0; token < tokens; ++token)
        if (const auto weight = static_cast<float>(exponentials[token] / sum); weight > 0.0F) weights.push_back({token, weight});
}

}  // namespace

std::size_t upsampled(const Slots& slots, std::size_t tokens) {
    return static_cast<std::size_t>(std::ceil(static_cast<double>(tokens) * slots.upsampling - TOLERANCE));
}

std::vector<std::size_t> predicted_lengths(const Slots& slots, const std::vector<float>& logits, std::size_t tokens,
                                           std::size_t max_slots, std::size_t count, bool around) {
    std::vector<std::int64_t> classes(logits.size());
    std::iota(classes.begin(), classes.end(), std::int64_t{0});
    count = std::min(count, logits.size());
    const auto by_logit = [&](std::int64_t one, std::int64_t other) {
        const float left = logits[static_cast<std::size_t>(one)], right = logits[static_cast<std::size_t>(other)];
        return left > right || (left == right && one < other);
    };
    std::partial_sort(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(around ? 1 : count), classes.end(), by_logit);
    if (around) {
        const std::int64_t best = classes[0], below = static_cast<std::int64_t>(count) / 2;
        for (std::size_t rank = 0; rank < count; ++rank) classes[rank] = static_cast<std::int64_t>(rank) - below;
        std::stable_sort(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(count),
                         [](std::int64_t one, std::int64_t other) { return std::abs(one) < std::abs(other); });
        for (std::size_t rank = 0; rank < count; ++rank) classes[rank] += best;
    }
    std::vector<std::size_t> lengths;
    const std::int64_t shift = slots.length_offset == 0 ? 0 : static_cast<std::int64_t>(tokens) - slots.length_offset;
    for (std::size_t rank = 0; rank < count; ++rank) {
        const auto length = static_cast<std::size_t>(
            std::clamp(classes[rank] + shift, slots.min_slots, std::max(slots.min_slots, static_cast<std::int64_t>(max_slots))));
        if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) lengths.push_back(length);
    }
    return lengths;
}

void source_weights(const Slots& slots, std::size_t slot, std::size_t size, std::size_t tokens,
                    std::vector<SourceWeight>& weights) {
    weights.clear();
    const auto position = static_cast<double>(slot);
    switch (slots.input) {
        case SlotInput::MASK:
            return;
        case SlotInput::UNIFORM:
            return weights.push_back({std::min(uniform_token(slot, size, tokens), tokens - 1), 1.0F});
        case SlotInput::REPEAT:
            return weights.push_back(
                {std::min(static_cast<std::size_t>(std::floor(position / slots.upsampling + TOLERANCE)), tokens - 1), 1.0F});
        case SlotInput::SOFT:
            return mix((position + 0.5) * static_cast<double>(tokens) / static_cast<double>(size) - 0.5, 1.0, slots.temperature,
                       tokens, weights);
        case SlotInput::GAUSSIAN:
            return mix(position / slots.upsampling - 0.5, slots.upsampling * slots.upsampling, slots.temperature, tokens, weights);
    }
}

ParallelNetwork::ParallelNetwork(Transformer transformer, Precision precision, const Slots& slots, std::vector<float> lengths,
                                 std::span<const std::int64_t> impossible)
    : network(std::move(transformer)), slots(slots), lengths(std::move(lengths)) {
    network.exclude(impossible);
    network.quantize(precision);
}

std::vector<float> length_logits(const ParallelNetwork& network, const float* states, std::size_t tokens) {
    const std::size_t width = network.network.shape.width;
    std::vector<float> mean(width, 0.0F), logits(network.lengths.size() / width);
    for (std::size_t position = 0; position < tokens; ++position)
        for (std::size_t unit = 0; unit < width; ++unit) mean[unit] += states[position * width + unit];
    for (float& value : mean) value /= static_cast<float>(tokens);
    for (std::size_t row = 0; row < logits.size(); ++row)
        logits[row] = dot(mean.data(), network.lengths.data() + row * width, width);
    return logits;
}

TargetPass::TargetPass(const ParallelNetwork& network, const Sources& sources, const ParallelRules& rules, ThreadTeam& team,
                       const std::function<std::vector<std::size_t>(const float* states, std::size_t tokens)>& sizes)
    : network_(network), sources_(sources), rules_(rules), team_(team) {
    const Transformer& model = network.network;
    const Buffer states = model.encoder_states(sources, team);
    cross_cache_ = model.cross_cache(sources, states.data(), team);
    const float* next = states.data();
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence) {
        const auto tokens = static_cast<std::size_t>(sources.lengths[sentence]);
        for (const std::size_t size : sizes(next, tokens)) sentences_.push_back(sentence), sizes_.push_back(size);
        next += tokens * model.shape.width;
    }
    for (const std::vector<KeyValues>& layer : cross_cache_.layers) {
        memories_.emplace_back();
        for (const std::size_t sentence : sentences_) memories_.back().push_back(layer[sentence]);
    }
    starts_.push_back(0);
    for (const std::size_t size : sizes_) starts_.push_back(starts_.back() + size);
    pass_.emplace(model, sizes_, team_);
    if (rules.shortlist.tokens == 0) return;
    for (std::size_t sentence = 0; sentence < sources.rows.size(); ++sentence)
        shortlists_.push_back(shortlist(model, sources.sentence(sentence), rules.shortlist, model.lexicon.quantized()));
}

void TargetPass::embed(const std::vector<std::int64_t>& tokens, float* x) const {
    const Transformer& model = network_.network;
    const std::size_t width = model.shape.width;
    const float scale = model.shape.embedding_scale();
    const std::vector<float>& source_table = model.source_embedding.empty() ? model.target_embedding : model.source_embedding;
    std::vector<SourceWeight> weights;
    for (std::size_t target = 0; target < targets(); ++target) {
        const std::span<const std::int64_t> source = sources_.sentence(sentences_[target]);
        for (std::size_t slot = 0; slot < sizes_[target]; ++slot, x += width) {
            std::copy_n(model.slot_codes.data() + slot * width, width, x);
            const auto add = [&](const std::vector<float>& table, std::int64_t token, float factor) {
                const float* embedding = table.data() + static_cast<std::size_t>(token) * width;
                for (std::size_t unit = 0; unit < width; ++unit) x[unit] += embedding[unit] * factor;
            };
            const std::int64_t given = tokens[starts_[target] + slot];
            if (given >= 0 || network_.slots.input == SlotInput::MASK) {
                add(model.target_embedding, given >= 0 ? given : network_.slots.mask, scale);
                continue;
            }
            source_weights(network_.slots, slot, sizes_[target], source.size(), weights);
            for (const SourceWeight& one : weights) add(source_table, source[one.token], one.weight * scale);
        }
    }
}

void TargetPass::run(const std::vector<std::int64_t>& tokens) {
    const Transformer& model = network_.network;
    embed(tokens, pass_->x());
    for (std::size_t layer = 0; layer < model.decoder.size(); ++layer)
        pass_->decode(model.decoder[layer], model.quantized_decoder[layer], memories_[layer]);
    if (model.shape.pre_norm) model.decoder_norm.apply(pass_->x(), pass_->rows(), pass_->x());
}

void TargetPass::rank(const std::vector<std::size_t>& rows, std::size_t num_tokens, bool separate, const Use& use) {
    if (shortlists_.empty()) return rank_part(rows, 0, nullptr, num_tokens, separate, use);
    std::size_t first = 0;
    for (std::size_t target = 0; target < targets(); ++target) {
        std::size_t last = first;
        while (last < rows.size() && rows[last] < starts_[target + 1]) ++last;
        rank_part({rows.data() + first, last - first}, first, &shortlists_[sentences_[target]], num_tokens, separate, use);
        first = last;
    }
}

// `first`: the position of the first of these rows among all rows to rank.
void TargetPass::rank_part(std::span<const std::size_t> rows, std::size_t first, const Shortlist* own, std::size_t num_tokens,
                           bool separate, const Use& use) {
    if (rows.empty()) return;
    const Transformer& model = network_.network;
    const std::size_t width = model.shape.width;
    states_.reserve(rows.size() * width);
    for (std::size_t position = 0; position < rows.size(); ++position)
        std::copy_n(pass_->x() + rows[position] * width, width, states_.data() + position * width);
    const Vocabulary vocabulary =
        own != nullptr ? own->vocabulary(model) : Vocabulary{model.vocabulary, model.quantized_vocabulary};
    const TokenRules token_rules = own != nullptr ? own->localize(rules_.token_rules) : rules_.token_rules;
    top_k_tokens(vocabulary, states_.data(), rows.size(), 1, 0, num_tokens, separate, token_rules, top_tokens_, team_);
    for (std::size_t position = 0; position < rows.size(); ++position) use(first + position, top_tokens_, position);
}

}  // namespace fewstep
