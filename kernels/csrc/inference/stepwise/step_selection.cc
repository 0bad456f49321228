#include "csrc/inference/stepwise/step_selection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace fewstep {

namespace {

constexpr double NONE = -std::numeric_limits<double>::infinity();
constexpr std::size_t KEPT_LINKED = 4;  // times K + 1 partial continuations, where links are still to come

constexpr int END = -1, NOTHING = -2;  // in place of a word of a slot: EOS, which stands apart, and what follows it

// One way to go on from a partial continuation: a key to rank by, and what it adds.
struct Option {
    double key, score;
    int origin, word;
};

// The first `count`, best first; of equals the one that was offered first: by origin, then by word, EOS last.
void keep_best(std::vector<Option>& options, std::size_t count) {
    const auto better = [](const Option& one, const Option& other) {
        if (one.key != other.key) return one.key > other.key;
        if (one.origin != other.origin) return one.origin < other.origin;
        return static_cast<unsigned>(one.word) < static_cast<unsigned>(other.word);
    };
    if (options.size() > count) {
        std::nth_element(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(count), options.end(), better);
        options.resize(count);
    }
    std::sort(options.begin(), options.end(), better);
}

// The `count`-th highest of the keys so far; minus infinity while there are fewer.
class Bar {
 public:
    explicit Bar(std::size_t count) : count_(count) {}

    double operator()() const { return keys_.size() < count_ ? NONE : keys_.top(); }
    void offer(double key) {
        if (keys_.size() == count_ && !(key > keys_.top())) return;
        if (keys_.size() == count_) keys_.pop();
        keys_.push(key);
    }

 private:
    std::size_t count_;
    std::priority_queue<double, std::vector<double>, std::greater<>> keys_;
};

// A hypothesis and the words of the slots of the step so far: the last one here, the others in `before` among those of a slot less.
struct Partial {
    double score;
    int hypothesis, before, word;
    bool ends;
};
using Slots = std::vector<std::vector<Partial>>;  // by number of slots

// Links between words of one step, each asked for once.
class Links {
 public:
    Links(const StepRules& rules, const SlotWords& slots, std::size_t hypotheses)
        : rules_(rules), ids_(slots.ids), words_(static_cast<std::size_t>(slots.words)), size_(static_cast<std::size_t>(rules.step_size)) {
        if (rules.neighbours.ngram == nullptr) return;
        alone_.resize(hypotheses * size_ * words_);
        found_.assign(alone_.size() * words_, std::numeric_limits<double>::quiet_NaN());
    }

    // Of a word with that of the slot before it of its direction.
    double operator()(int hypothesis, int slot, int before, int word) {
        const std::size_t directions = rules_.neighbours.leftward.size(), own = static_cast<std::size_t>(slot);
        const std::size_t place = (static_cast<std::size_t>(hypothesis) * size_ + own) * words_ + static_cast<std::size_t>(word);
        double& link = found_[place * words_ + static_cast<std::size_t>(before)];
        if (std::isnan(link)) {
            const std::size_t earlier = place - directions * words_ - static_cast<std::size_t>(word) + static_cast<std::size_t>(before);
            link = rules_.neighbours.link(own % directions, alone(earlier), alone(place));
        }
        return link;
    }

 private:
    const LoneWord& alone(std::size_t place) {
        if (!alone_[place]) alone_[place] = rules_.neighbours.alone(ids_[place]);
        return *alone_[place];
    }

    const StepRules& rules_;
    const std::int64_t* ids_;
    std::size_t words_, size_;
    std::vector<std::optional<LoneWord>> alone_;  // [H,z,W]
    std::vector<double> found_;    // [H,z,W,W] NaN: not asked for yet
};

class Selector {
 public:
    Selector(const StepRules& rules, const SlotWords& slots, std::span<const double> live, std::int64_t room, Links& links)
        : rules_(rules), slots_(slots), live_(live), room_(std::min<std::int64_t>(room, rules.step_size)), links_(links) {}

    std::vector<Continuation> exact(bool with_eos) const;
    std::vector<Continuation> outer() const;
    std::vector<Continuation> double_top_k() const;

 private:
    std::size_t at(int hypothesis, int slot) const { return static_cast<std::size_t>(hypothesis * rules_.step_size + slot); }
    double score(int hypothesis, int slot, int word) const {
        return slots_.scores[at(hypothesis, slot) * static_cast<std::size_t>(slots_.words) + static_cast<std::size_t>(word)];
    }
    std::int64_t id(int hypothesis, int slot, int word) const {
        return slots_.ids[at(hypothesis, slot) * static_cast<std::size_t>(slots_.words) + static_cast<std::size_t>(word)];
    }
    // Of words of a slot with the one before it of its direction in this step: the place of that, or NOTHING.
    int before(const Slots& partials, const Partial& partial, int slot) const;
    bool apart() const { return rules_.selection == Selection::EXACT && !rules_.per_direction; }
    double end(int hypothesis, int slot, bool with_eos) const {
        return with_eos && apart() ? slots_.eos[at(hypothesis, slot)] : NONE;
    }
    bool offered(int hypothesis, int slot, int word, bool with_eos) const {
        return score(hypothesis, slot, word) > NONE && (with_eos || id(hypothesis, slot, word) != rules_.eos);
    }
    // The best that the slots after each can add to a hypothesis: [z].
    std::vector<double> completions(int hypothesis, bool with_eos) const;
    Partial start(int hypothesis) const { return {live_[static_cast<std::size_t>(hypothesis)], hypothesis, -1, NOTHING, false}; }
    // All hypotheses that live, without slots.
    Slots begun() const;
    std::int64_t token(const Partial& partial, int slot) const {
        return partial.word == NOTHING ? rules_.pad : partial.word == END ? rules_.eos : id(partial.hypothesis, slot, partial.word);
    }
    // A slot more.
    void extend(Slots& partials, const std::vector<Option>& options) const;
    // Those of the last slot, as they are written.
    std::vector<Continuation> written(const Slots& partials) const;

    const StepRules& rules_;
    const SlotWords& slots_;
    std::span<const double> live_;
    std::int64_t room_;  // slots that are written
    Links& links_;
};

int Selector::before(const Slots& partials, const Partial& partial, int slot) const {
    const auto directions = static_cast<int>(rules_.neighbours.leftward.size());
    if (rules_.neighbours.ngram == nullptr || slot < directions) return NOTHING;
    const Partial* at = &partial;
    for (int back = 1; back < directions; ++back) at = &partials[static_cast<std::size_t>(slot - back)][static_cast<std::size_t>(at->before)];
    return at->word;
}

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

Slots Selector::begun() const {
    Slots partials(1);
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis)
        if (live_[static_cast<std::size_t>(hypothesis)] > NONE) partials[0].push_back(start(hypothesis));
    return partials;
}

void Selector::extend(Slots& partials, const std::vector<Option>& options) const {
    const auto slot = static_cast<int>(partials.size()) - 1;
    std::vector<Partial> next;
    next.reserve(options.size());
    for (const Option& option : options) {
        const Partial& origin = partials.back()[static_cast<std::size_t>(option.origin)];
        next.push_back({option.score, origin.hypothesis, option.origin, option.word, origin.ends});
        next.back().ends = origin.ends || token(next.back(), slot) == rules_.eos;
    }
    partials.push_back(std::move(next));
}

std::vector<Continuation> Selector::written(const Slots& partials) const {
    std::vector<Continuation> found;
    found.reserve(partials.back().size());
    for (const Partial& last : partials.back()) {
        const std::vector<std::int64_t> nothing(static_cast<std::size_t>(rules_.step_size), rules_.pad);
        Continuation& one = found.emplace_back(Continuation{last.score, last.hypothesis, last.ends, nothing});
        const Partial* at = &last;
        for (std::size_t slot = partials.size() - 1; slot-- > 0; at = &partials[slot][static_cast<std::size_t>(at->before)])
            one.tokens[slot] = token(*at, static_cast<int>(slot));
    }
    return found;
}

std::vector<Continuation> Selector::exact(bool with_eos) const {
    std::vector<std::vector<double>> rest;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis) rest.push_back(completions(hypothesis, with_eos));
    Slots partials = begun();
    std::vector<Option> options;
    const bool linked = rules_.neighbours.ngram != nullptr;
    const double most = rules_.neighbours.most();
    for (int slot = 0; slot < room_; ++slot) {
        options.clear();
        const std::size_t count = (static_cast<std::size_t>(rules_.beams) + 1) * (!linked || slot + 1 == room_ ? 1 : KEPT_LINKED);
        Bar bar(count);
        const auto offer = [&](const Option& option) {
            options.push_back(option);
            if (linked) bar.offer(option.key);
        };
        for (int origin = 0; origin < static_cast<int>(partials.back().size()); ++origin) {
            const Partial& partial = partials.back()[static_cast<std::size_t>(origin)];
            if (partial.ends && apart()) {
                offer({partial.score, partial.score, origin, NOTHING});
                continue;
            }
            const int hypothesis = partial.hypothesis, earlier = before(partials, partial, slot);
            const double after = rest[static_cast<std::size_t>(hypothesis)][static_cast<std::size_t>(slot)];
            for (int word = 0; word < slots_.words; ++word) {
                if (!offered(hypothesis, slot, word, with_eos)) continue;
                double sum = partial.score + score(hypothesis, slot, word);
                if (earlier != NOTHING) {
                    if (!(sum + most + after > bar())) continue;  // whatever the link is
                    sum += links_(hypothesis, slot, earlier, word);
                }
                offer({sum + after, sum, origin, word});
            }
            if (const double ending = end(hypothesis, slot, with_eos); ending > NONE)
                offer({partial.score + ending, partial.score + ending, origin, END});
        }
        keep_best(options, count);
        extend(partials, options);
    }
    return written(partials);
}

std::vector<Continuation> Selector::outer() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    std::vector<Continuation> all;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis) {
        if (live_[static_cast<std::size_t>(hypothesis)] == NONE) continue;
        Slots sums{{start(hypothesis)}};
        for (int slot = 0; slot < room_; ++slot) {
            if (sums.back().size() > beams) sums.back().erase(sums.back().begin() + static_cast<std::ptrdiff_t>(beams), sums.back().end());
            std::vector<Option> options;
            for (int origin = 0; origin < static_cast<int>(sums.back().size()); ++origin)
                for (int word = 0; word < std::min(slots_.words, static_cast<int>(beams)); ++word) {
                    const double sum = sums.back()[static_cast<std::size_t>(origin)].score + score(hypothesis, slot, word);
                    if (sum > NONE) options.push_back({sum, sum, origin, word});
                }
            keep_best(options, options.size());
            extend(sums, options);
        }
        std::ranges::move(written(sums), std::back_inserter(all));
    }
    std::stable_sort(all.begin(), all.end(), [](const Continuation& one, const Continuation& other) { return one.score > other.score; });
    if (all.size() > 2 * beams + 1) all.resize(2 * beams + 1);
    return all;
}

std::vector<Continuation> Selector::double_top_k() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    Slots partials = begun();
    for (int slot = 0; slot < room_; ++slot) {
        std::vector<Option> options;
        for (int origin = 0; origin < static_cast<int>(partials.back().size()); ++origin) {
            const Partial& partial = partials.back()[static_cast<std::size_t>(origin)];
            for (int word = 0; word < slots_.words; ++word) {
                const double sum = partial.score + score(partial.hypothesis, slot, word);
                if (sum > NONE) options.push_back({sum, sum, origin, word});
            }
        }
        keep_best(options, (slot == 0 ? 2 : 3) * beams);
        extend(partials, options);
    }
    return written(partials);
}

}  // namespace

Ranked select(const StepRules& rules, const SlotWords& slots, std::span<const double> live, std::int64_t room, Team& team) {
    const bool side_by_side = rules.selection == Selection::EXACT && rules.step_size > 1 && team.threads() > 1;
    std::vector<Links> links(side_by_side ? 2 : 1, Links(rules, slots, live.size()));
    const Selector selector(rules, slots, live, room, links[0]), other(rules, slots, live, room, links.back());
    if (rules.selection == Selection::EXACT) {
        Ranked ranked;
        const auto rank = [&](std::size_t part, int) { part == 0 ? ranked.all = selector.exact(true) : ranked.living = other.exact(false); };
        if (side_by_side) team.run(2, rank);
        else rank(0, 0), rank(1, 0);
        return ranked;
    }
    Ranked ranked{rules.selection == Selection::OUTER ? selector.outer() : selector.double_top_k(), {}};
    for (const Continuation& one : ranked.all)
        if (!one.ends && ranked.living.size() <= static_cast<std::size_t>(rules.beams)) ranked.living.push_back(one);
    return ranked;
}

}  // namespace fewstep
