#include "csrc/inference/parallel/slots.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

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

}  // namespace fewstep
