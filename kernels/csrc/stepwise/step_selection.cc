#include "csrc/stepwise/step_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();
constexpr std::size_t KEPT_LINKED = 4;  // times K + 1 partial continuations, where links are still to come

// One way to continue: a key to rank by, and where it comes from.
struct Option {
    double key, score;
    int origin, word;
};

// The first `count`, best first; of equals the one that was offered first.
void keep_best(std::vector<Option>& options, std::size_t count) {
    std::stable_sort(options.begin(), options.end(), [](const Option& one, const Option& other) { return one.key > other.key; });
    if (options.size() > count) options.resize(count);
}

class Selector {
 public:
    Selector(const StepRules& rules, const SlotWords& slots, std::span<const double> live, std::int64_t room)
        : rules_(rules), slots_(slots), live_(live), room_(room) {}

    std::vector<Continuation> exact(bool with_eos) const;
    std::vector<Continuation> outer() const;
    std::vector<Continuation> double_top_k() const;

 private:
    static constexpr int END = -1, NOTHING = -2;

    std::size_t at(int hypothesis, int slot) const { return static_cast<std::size_t>(hypothesis * rules_.step_size + slot); }
    double score(int hypothesis, int slot, int word) const {
        return slots_.scores[at(hypothesis, slot) * static_cast<std::size_t>(slots_.words) + static_cast<std::size_t>(word)];
    }
    std::int64_t id(int hypothesis, int slot, int word) const {
        return slots_.ids[at(hypothesis, slot) * static_cast<std::size_t>(slots_.words) + static_cast<std::size_t>(word)];
    }
    // Of a word with the one before it of its direction in this step.
    double linked(const Continuation& partial, int slot, std::int64_t word) const {
        const auto directions = static_cast<int>(rules_.neighbours.leftward.size());
        if (rules_.neighbours.ngram == nullptr || slot < directions) return 0.0;
        return rules_.neighbours.link(static_cast<std::size_t>(slot % directions), partial.tokens[static_cast<std::size_t>(slot - directions)], word);
    }
    bool apart() const { return rules_.selection == Selection::EXACT && !rules_.per_direction; }
    double end(int hypothesis, int slot, bool with_eos) const {
        return with_eos && apart() ? slots_.eos[at(hypothesis, slot)] : NONE;
    }
    bool offered(int hypothesis, int slot, int word, bool with_eos) const {
        return score(hypothesis, slot, word) > NONE && (with_eos || id(hypothesis, slot, word) != rules_.eos);
    }
    // The best that the slots after each can add to a hypothesis: [z].
    std::vector<double> completions(int hypothesis, bool with_eos) const;
    Continuation start(int hypothesis) const {
        const std::vector<std::int64_t> nothing(static_cast<std::size_t>(rules_.step_size), rules_.pad);
        return {live_[static_cast<std::size_t>(hypothesis)], hypothesis, false, nothing};
    }
    Continuation extended(const Continuation& partial, int slot, const Option& option) const;

    const StepRules& rules_;
    const SlotWords& slots_;
    std::span<const double> live_;
    std::int64_t room_;
};

std::vector<double> Selector::completions(int hypothesis, bool with_eos) const {
    std::vector<double> rest(static_cast<std::size_t>(rules_.step_size), 0.0);
    for (int slot = rules_.step_size - 1; slot > 0; --slot) {
        const double after = rest[static_cast<std::size_t>(slot)];
        double best = end(hypothesis, slot, with_eos);
        for (int word = 0; word < slots_.words; ++word)
            if (offered(hypothesis, slot, word, with_eos)) best = std::max(best, score(hypothesis, slot, word) + after);
        rest[static_cast<std::size_t>(slot - 1)] = slot < room_ ? best : after;
    }
    return rest;
}

Continuation Selector::extended(const Continuation& partial, int slot, const Option& option) const {
    Continuation next = partial;
    next.score = option.score;
    if (option.word == NOTHING) return next;
    auto& token = next.tokens[static_cast<std::size_t>(slot)];
    token = option.word == END ? rules_.eos : id(partial.parent, slot, option.word);
    next.ends = next.ends || token == rules_.eos;
    return next;
}

std::vector<Continuation> Selector::exact(bool with_eos) const {
    std::vector<Continuation> partials;
    std::vector<std::vector<double>> rest;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis) {
        rest.push_back(completions(hypothesis, with_eos));
        if (live_[static_cast<std::size_t>(hypothesis)] > NONE) partials.push_back(start(hypothesis));
    }
    std::vector<Option> options;
    for (int slot = 0; slot < rules_.step_size && slot < room_; ++slot) {
        options.clear();
        for (int origin = 0; origin < static_cast<int>(partials.size()); ++origin) {
            const Continuation& partial = partials[static_cast<std::size_t>(origin)];
            if (partial.ends && apart()) {
                options.push_back({partial.score, partial.score, origin, NOTHING});
                continue;
            }
            const double after = rest[static_cast<std::size_t>(partial.parent)][static_cast<std::size_t>(slot)];
            for (int word = 0; word < slots_.words; ++word) {
                if (!offered(partial.parent, slot, word, with_eos)) continue;
                const double sum = partial.score + score(partial.parent, slot, word) + linked(partial, slot, id(partial.parent, slot, word));
                options.push_back({sum + after, sum, origin, word});
            }
            if (const double ending = end(partial.parent, slot, with_eos); ending > NONE)
                options.push_back({partial.score + ending, partial.score + ending, origin, END});
        }
        const bool last = slot + 1 == rules_.step_size || slot + 1 == room_;
        keep_best(options, (static_cast<std::size_t>(rules_.beams) + 1) * (rules_.neighbours.ngram == nullptr || last ? 1 : KEPT_LINKED));
        std::vector<Continuation> kept;
        for (const Option& option : options) kept.push_back(extended(partials[static_cast<std::size_t>(option.origin)], slot, option));
        partials = std::move(kept);
    }
    return partials;
}

std::vector<Continuation> Selector::outer() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    std::vector<Continuation> all;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis) {
        if (live_[static_cast<std::size_t>(hypothesis)] == NONE) continue;
        std::vector<Continuation> sums{start(hypothesis)};
        for (int slot = 0; slot < rules_.step_size && slot < room_; ++slot) {
            if (sums.size() > beams) sums.resize(beams);
            std::vector<Option> options;
            for (int origin = 0; origin < static_cast<int>(sums.size()); ++origin)
                for (int word = 0; word < std::min(slots_.words, static_cast<int>(beams)); ++word) {
                    const double sum = sums[static_cast<std::size_t>(origin)].score + score(hypothesis, slot, word);
                    if (sum > NONE) options.push_back({sum, sum, origin, word});
                }
            keep_best(options, options.size());
            std::vector<Continuation> wider;
            for (const Option& option : options) wider.push_back(extended(sums[static_cast<std::size_t>(option.origin)], slot, option));
            sums = std::move(wider);
        }
        all.insert(all.end(), sums.begin(), sums.end());
    }
    std::stable_sort(all.begin(), all.end(), [](const Continuation& one, const Continuation& other) { return one.score > other.score; });
    if (all.size() > 2 * beams + 1) all.resize(2 * beams + 1);
    return all;
}

std::vector<Continuation> Selector::double_top_k() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    std::vector<Continuation> partials;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis)
        if (live_[static_cast<std::size_t>(hypothesis)] > NONE) partials.push_back(start(hypothesis));
    for (int slot = 0; slot < rules_.step_size && slot < room_; ++slot) {
        std::vector<Option> options;
        for (int origin = 0; origin < static_cast<int>(partials.size()); ++origin) {
            const Continuation& partial = partials[static_cast<std::size_t>(origin)];
            for (int word = 0; word < slots_.words; ++word) {
                const double sum = partial.score + score(partial.parent, slot, word);
                if (sum > NONE) options.push_back({sum, sum, origin, word});
            }
        }
        keep_best(options, (slot == 0 ? 2 : 3) * beams);
        std::vector<Continuation> kept;
        for (const Option& option : options) kept.push_back(extended(partials[static_cast<std::size_t>(option.origin)], slot, option));
        partials = std::move(kept);
    }
    return partials;
}

}  // namespace

Ranked select(const StepRules& rules, const SlotWords& slots, std::span<const double> live, std::int64_t room) {
    const Selector selector(rules, slots, live, room);
    if (rules.selection == Selection::EXACT) return {selector.exact(true), selector.exact(false)};
    Ranked ranked{rules.selection == Selection::OUTER ? selector.outer() : selector.double_top_k(), {}};
    for (const Continuation& one : ranked.all)
        if (!one.ends && ranked.living.size() <= static_cast<std::size_t>(rules.beams)) ranked.living.push_back(one);
    return ranked;
}

}  // namespace fewstep
