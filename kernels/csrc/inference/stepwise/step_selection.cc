#include "csrc/inference/stepwise/step_selection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();
constexpr std::size_t COUPLED_FACTOR = 4;  // partial continuations kept with coupling, as a multiple of K + 1

constexpr int SEPARATE_EOS = -1, NO_TOKEN = -2;  // in place of a candidate: EOS if it is separate, and the slots after the end

// An extension of a partial continuation by one slot: the ranking key and the score.
struct Extension {
    double key, score;
    int parent, candidate;
};

// Throws std::invalid_argument for more of something than a step has memory for.
void require_space(const char* what, std::size_t count) {
    constexpr std::size_t MAX_COUNT = std::size_t{1} << 24;
    if (count > MAX_COUNT)
        throw std::invalid_argument("beam_size: expected at most " + std::to_string(MAX_COUNT) + what + ", got " +
                                    std::to_string(count) + "; use fewer hypotheses or candidates");
}

// Keep the `count` best, sorted; ties by parent, then by candidate, EOS last. What is not a number is dropped: it has no order, and
// would lead the sort out of its range.
void keep_top_k(std::vector<Extension>& extensions, std::size_t count) {
    std::erase_if(extensions, [](const Extension& one) { return std::isnan(one.key); });
    const auto better = [](const Extension& one, const Extension& other) {
        if (one.key != other.key) return one.key > other.key;
        if (one.parent != other.parent) return one.parent < other.parent;
        return static_cast<unsigned>(one.candidate) < static_cast<unsigned>(other.candidate);
    };
    if (extensions.size() > count) {
        std::nth_element(extensions.begin(), extensions.begin() + static_cast<std::ptrdiff_t>(count), extensions.end(), better);
        extensions.resize(count);
    }
    std::sort(extensions.begin(), extensions.end(), better);
}

// The `count`-th highest key so far; minus infinity while there are fewer.
class KthBest {
  public:
    explicit KthBest(std::size_t count) : count_(count) {}

    double operator()() const { return keys_.size() < count_ ? MINUS_INFINITY : keys_.top(); }
    void add(double key) {
        if (keys_.size() == count_ && !(key > keys_.top())) return;
        if (keys_.size() == count_) keys_.pop();
        keys_.push(key);
    }

  private:
    std::size_t count_;
    std::priority_queue<double, std::vector<double>, std::greater<>> keys_;
};

// A hypothesis with candidates for the first slots of the step. Holds the last candidate; `before` is the index of the partial
// continuation that is one slot shorter.
struct Partial {
    double score;
    int hypothesis, earlier, candidate;
    bool ends;
};
using PartialsBySlot = std::vector<std::vector<Partial>>;  // by number of slots

// Coupling scores between the candidates of one step, computed on demand.
class CouplingCache {
  public:
    CouplingCache(const StepRules& rules, const SlotCandidates& slots, std::size_t hypotheses)
        : rules_(rules),
          ids_(slots.ids),
          num_candidates_(static_cast<std::size_t>(slots.num_candidates)),
          size_(static_cast<std::size_t>(rules.step_size)) {
        if (rules.coupling.ngram == nullptr) return;
        require_space(" coupling scores", hypotheses * size_ * num_candidates_ * num_candidates_);
        unigrams_.resize(hypotheses * size_ * num_candidates_);
        coupling_scores_.assign(unigrams_.size() * num_candidates_, std::numeric_limits<double>::quiet_NaN());
    }

    // The coupling score of a candidate with one of the previous slot of its direction.
    double operator()(int hypothesis, int slot, int earlier, int candidate) {
        const std::size_t directions = rules_.coupling.right_to_left.size(), own = static_cast<std::size_t>(slot);
        const std::size_t index =
            (static_cast<std::size_t>(hypothesis) * size_ + own) * num_candidates_ + static_cast<std::size_t>(candidate);
        double& coupling = coupling_scores_[index * num_candidates_ + static_cast<std::size_t>(earlier)];
        if (std::isnan(coupling)) {
            const std::size_t earlier_candidate =
                index - directions * num_candidates_ - static_cast<std::size_t>(candidate) + static_cast<std::size_t>(earlier);
            coupling = rules_.coupling.score(own % directions, unigram(earlier_candidate), unigram(index));
        }
        return coupling;
    }

  private:
    const Unigram& unigram(std::size_t index) {
        if (!unigrams_[index]) unigrams_[index] = rules_.coupling.unigram(ids_[index]);
        return *unigrams_[index];
    }

    const StepRules& rules_;
    const std::int64_t* ids_;
    std::size_t num_candidates_, size_;
    std::vector<std::optional<Unigram>> unigrams_;  // [H,z,W]
    std::vector<double> coupling_scores_;           // [H,z,W,W] NaN: not computed yet
};

class Selector {
  public:
    Selector(const StepRules& rules, const SlotCandidates& slots, std::span<const double> live, std::int64_t remaining,
             CouplingCache& coupling_cache)
        : rules_(rules),
          slots_(slots),
          live_(live),
          remaining_(rules.whole_steps() ? rules.step_size : std::min<std::int64_t>(remaining, rules.step_size)),
          coupling_cache_(coupling_cache) {}

    std::vector<Continuation> exact(bool with_eos) const;
    std::vector<Continuation> outer() const;
    std::vector<Continuation> double_top_k() const;

  private:
    std::size_t at(int hypothesis, int slot) const { return static_cast<std::size_t>(hypothesis * rules_.step_size + slot); }
    double score(int hypothesis, int slot, int candidate) const {
        return slots_
            .scores[at(hypothesis, slot) * static_cast<std::size_t>(slots_.num_candidates) + static_cast<std::size_t>(candidate)];
    }
    std::int64_t id(int hypothesis, int slot, int candidate) const {
        return slots_
            .ids[at(hypothesis, slot) * static_cast<std::size_t>(slots_.num_candidates) + static_cast<std::size_t>(candidate)];
    }
    // The candidate of the previous slot of the same direction in this step, or NO_TOKEN.
    int earlier(const PartialsBySlot& partials, const Partial& partial, int slot) const;
    bool eos_is_separate() const { return rules_.selection == Selection::EXACT && !rules_.per_direction; }
    double eos_score(int hypothesis, int slot, bool with_eos) const {
        return with_eos && eos_is_separate() ? slots_.eos[at(hypothesis, slot)] : MINUS_INFINITY;
    }
    bool is_candidate(int hypothesis, int slot, int candidate, bool with_eos) const {
        return score(hypothesis, slot, candidate) > MINUS_INFINITY && (with_eos || id(hypothesis, slot, candidate) != rules_.eos);
    }
    // An upper bound [z] of what the slots after each slot can add to a hypothesis.
    std::vector<double> best_completions(int hypothesis, bool with_eos) const;
    Partial start(int hypothesis) const { return {live_[static_cast<std::size_t>(hypothesis)], hypothesis, -1, NO_TOKEN, false}; }
    // All hypotheses, without slots of this step.
    PartialsBySlot initial_partials() const;
    std::int64_t token(const Partial& partial, int slot) const {
        return partial.candidate == NO_TOKEN       ? rules_.pad
               : partial.candidate == SEPARATE_EOS ? rules_.eos
                                                   : id(partial.hypothesis, slot, partial.candidate);
    }
    // Add a slot.
    void extend(PartialsBySlot& partials, const std::vector<Extension>& extensions) const;
    // Convert the partial continuations of the last slot to continuations.
    std::vector<Continuation> continuations(const PartialsBySlot& partials) const;

    const StepRules& rules_;
    const SlotCandidates& slots_;
    std::span<const double> live_;
    std::int64_t remaining_;  // slots of the step that are within the limit
    CouplingCache& coupling_cache_;
};

int Selector::earlier(const PartialsBySlot& partials, const Partial& partial, int slot) const {
    const auto directions = static_cast<int>(rules_.coupling.right_to_left.size());
    if (rules_.coupling.ngram == nullptr || slot < directions) return NO_TOKEN;
    const Partial* at = &partial;
    for (int back = 1; back < directions; ++back)
        at = &partials[static_cast<std::size_t>(slot - back)][static_cast<std::size_t>(at->earlier)];
    return at->candidate;
}

std::vector<double> Selector::best_completions(int hypothesis, bool with_eos) const {
    std::vector<double> completion(static_cast<std::size_t>(rules_.step_size), 0.0);
    for (int slot = rules_.step_size - 1; slot > 0; --slot) {
        const double after = completion[static_cast<std::size_t>(slot)];
        double best = eos_score(hypothesis, slot, with_eos);
        for (int candidate = 0; candidate < slots_.num_candidates; ++candidate)
            if (is_candidate(hypothesis, slot, candidate, with_eos))
                best = std::max(best, score(hypothesis, slot, candidate) + after);
        completion[static_cast<std::size_t>(slot - 1)] = slot < remaining_ ? best : after;
    }
    return completion;
}

PartialsBySlot Selector::initial_partials() const {
    PartialsBySlot partials(1);
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis)
        if (live_[static_cast<std::size_t>(hypothesis)] > MINUS_INFINITY) partials[0].push_back(start(hypothesis));
    return partials;
}

void Selector::extend(PartialsBySlot& partials, const std::vector<Extension>& extensions) const {
    const auto slot = static_cast<int>(partials.size()) - 1;
    std::vector<Partial> next;
    next.reserve(extensions.size());
    for (const Extension& extension : extensions) {
        const Partial& parent = partials.back()[static_cast<std::size_t>(extension.parent)];
        next.push_back({extension.score, parent.hypothesis, extension.parent, extension.candidate, parent.ends});
        next.back().ends = parent.ends || token(next.back(), slot) == rules_.eos;
    }
    partials.push_back(std::move(next));
}

std::vector<Continuation> Selector::continuations(const PartialsBySlot& partials) const {
    std::vector<Continuation> found;
    found.reserve(partials.back().size());
    for (const Partial& last : partials.back()) {
        const std::vector<std::int64_t> padding(static_cast<std::size_t>(rules_.step_size), rules_.pad);
        Continuation& one = found.emplace_back(Continuation{last.score, last.hypothesis, last.ends, padding});
        const Partial* at = &last;
        for (std::size_t slot = partials.size() - 1; slot-- > 0; at = &partials[slot][static_cast<std::size_t>(at->earlier)])
            one.tokens[slot] = token(*at, static_cast<int>(slot));
    }
    return found;
}

std::vector<Continuation> Selector::exact(bool with_eos) const {
    std::vector<std::vector<double>> completion;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis)
        completion.push_back(best_completions(hypothesis, with_eos));
    PartialsBySlot partials = initial_partials();
    std::vector<Extension> extensions;
    const bool coupled = rules_.coupling.ngram != nullptr;
    const double max_coupling = rules_.coupling.max_score();
    for (int slot = 0; slot < remaining_; ++slot) {
        extensions.clear();
        require_space(" continuations", partials.back().size() * static_cast<std::size_t>(slots_.num_candidates));
        const std::size_t count =
            (static_cast<std::size_t>(rules_.beams) + 1) * (!coupled || slot + 1 == remaining_ ? 1 : COUPLED_FACTOR);
        KthBest kth_best(count);
        const auto add = [&](const Extension& extension) {
            extensions.push_back(extension);
            if (coupled) kth_best.add(extension.key);
        };
        for (int parent = 0; parent < static_cast<int>(partials.back().size()); ++parent) {
            const Partial& partial = partials.back()[static_cast<std::size_t>(parent)];
            if (partial.ends && eos_is_separate()) {
                add({partial.score, partial.score, parent, NO_TOKEN});
                continue;
            }
            const int hypothesis = partial.hypothesis, earlier_candidate = earlier(partials, partial, slot);
            const double after = completion[static_cast<std::size_t>(hypothesis)][static_cast<std::size_t>(slot)];
            for (int candidate = 0; candidate < slots_.num_candidates; ++candidate) {
                if (!is_candidate(hypothesis, slot, candidate, with_eos)) continue;
                double sum = partial.score + score(hypothesis, slot, candidate);
                if (earlier_candidate != NO_TOKEN) {
                    if (!(sum + max_coupling + after > kth_best())) continue;  // for any coupling score
                    sum += coupling_cache_(hypothesis, slot, earlier_candidate, candidate);
                }
                add({sum + after, sum, parent, candidate});
            }
            if (const double ending = eos_score(hypothesis, slot, with_eos); ending > MINUS_INFINITY)
                add({partial.score + ending, partial.score + ending, parent, SEPARATE_EOS});
        }
        keep_top_k(extensions, count);
        extend(partials, extensions);
    }
    return continuations(partials);
}

std::vector<Continuation> Selector::outer() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    std::vector<Continuation> all;
    for (int hypothesis = 0; hypothesis < static_cast<int>(live_.size()); ++hypothesis) {
        if (live_[static_cast<std::size_t>(hypothesis)] == MINUS_INFINITY) continue;
        PartialsBySlot sums{{start(hypothesis)}};
        for (int slot = 0; slot < remaining_; ++slot) {
            std::vector<Extension> extensions;
            for (int parent = 0; parent < static_cast<int>(sums.back().size()); ++parent)
                for (int candidate = 0; candidate < std::min(slots_.num_candidates, static_cast<int>(beams)); ++candidate) {
                    const double sum = sums.back()[static_cast<std::size_t>(parent)].score + score(hypothesis, slot, candidate);
                    if (sum > MINUS_INFINITY) extensions.push_back({sum, sum, parent, candidate});
                }
            const bool is_cut = slot + 1 < remaining_ || rules_.selection == Selection::OUTER;
            keep_top_k(extensions, is_cut ? beams : extensions.size());
            extend(sums, extensions);
        }
        std::ranges::move(continuations(sums), std::back_inserter(all));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Continuation& one, const Continuation& other) { return one.score > other.score; });
    if (all.size() > rules_.num_kept() + 1) all.resize(rules_.num_kept() + 1);
    return all;
}

std::vector<Continuation> Selector::double_top_k() const {
    const auto beams = static_cast<std::size_t>(rules_.beams);
    PartialsBySlot partials = initial_partials();
    for (int slot = 0; slot < remaining_; ++slot) {
        std::vector<Extension> extensions;
        require_space(" continuations", partials.back().size() * static_cast<std::size_t>(slots_.num_candidates));
        for (int parent = 0; parent < static_cast<int>(partials.back().size()); ++parent) {
            const Partial& partial = partials.back()[static_cast<std::size_t>(parent)];
            for (int candidate = 0; candidate < slots_.num_candidates; ++candidate) {
                const double sum = partial.score + score(partial.hypothesis, slot, candidate);
                if (sum > MINUS_INFINITY) extensions.push_back({sum, sum, parent, candidate});
            }
        }
        keep_top_k(extensions, (slot == 0 ? 2 : 3) * beams);
        extend(partials, extensions);
    }
    return continuations(partials);
}

}  // namespace

Ranked select(const StepRules& rules, const SlotCandidates& slots, std::span<const double> live, std::int64_t remaining,
              ThreadTeam& team) {
    const bool in_parallel = rules.selection == Selection::EXACT && rules.step_size > 1 && team.threads() > 1;
    std::vector<CouplingCache> coupling_caches(in_parallel ? 2 : 1, CouplingCache(rules, slots, live.size()));
    const Selector selector(rules, slots, live, remaining, coupling_caches[0]),
        unfinished_selector(rules, slots, live, remaining, coupling_caches.back());
    if (rules.selection == Selection::EXACT) {
        Ranked ranked;
        const auto rank = [&](std::size_t part, int) {
            part == 0 ? ranked.all = selector.exact(true) : ranked.unfinished = unfinished_selector.exact(false);
        };
        if (in_parallel)
            team.run(2, rank);
        else
            rank(0, 0), rank(1, 0);
        return ranked;
    }
    Ranked ranked{rules.whole_steps() ? selector.outer() : selector.double_top_k(), {}};
    const std::size_t count = rules.whole_steps() ? std::min(rules.num_kept(), ranked.all.size()) : ranked.all.size();
    for (std::size_t rank = 0; rank < count && ranked.unfinished.size() <= static_cast<std::size_t>(rules.beams); ++rank)
        if (!ranked.all[rank].ends) ranked.unfinished.push_back(ranked.all[rank]);
    return ranked;
}

}  // namespace fewstep
