#include "csrc/inference/stepwise/joint_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

Unigram BigramCoupling::unigram(std::int64_t token) const {
    Unigram found{static_cast<std::uint32_t>(token)};
    found.log_prob = ngram->score(NgramModel::EMPTY, found.id, found.state);
    return found;
}

double BigramCoupling::score(std::size_t direction, const Unigram& earlier, const Unigram& token) const {
    const auto& [left, right] = right_to_left[direction] ? std::tie(token, earlier) : std::tie(earlier, token);
    NgramState after = NgramModel::EMPTY;
    return weight * (ngram->score(left.state, right.id, after) - right.log_prob);
}

double BigramCoupling::max_score() const { return ngram == nullptr ? 0.0 : -weight * ngram->min_log_prob(); }

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

// The best chain of candidates that ends with a candidate of a slot, and its predecessor.
struct Chain {
    double score = MINUS_INFINITY;
    std::size_t earlier_candidate = 0;
};

// The unigrams of the candidates of a slot, computed on demand.
class UnigramCache {
  public:
    UnigramCache(const BigramCoupling& coupling, const std::int64_t* ids, std::size_t num_candidates)
        : coupling_(coupling), ids_(ids), unigrams_(num_candidates) {}

    const Unigram& operator[](std::size_t candidate) {
        if (!unigrams_[candidate]) unigrams_[candidate] = coupling_.unigram(ids_[candidate]);
        return *unigrams_[candidate];
    }

  private:
    const BigramCoupling& coupling_;
    const std::int64_t* ids_;
    std::vector<std::optional<Unigram>> unigrams_;
};

}  // namespace

void JointStep::choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size,
                             float* chosen_scores, std::int64_t* chosen) const {
    const std::size_t directions = coupling.right_to_left.size();
    const double max_coupling = coupling.max_score();
    std::vector<Chain> chains;  // [slots,W]
    std::optional<UnigramCache> earlier_unigrams;
    for (std::size_t slot = direction; slot < step_size; slot += directions) {
        const Chain* earlier_chains = chains.data() + chains.size() - (slot == direction ? 0 : num_candidates);
        UnigramCache unigrams(coupling, ids + slot * num_candidates, num_candidates);
        std::vector<Chain> next(num_candidates);
        double best = MINUS_INFINITY;  // of the last slot, where only the best chain matters
        for (std::size_t candidate = 0; candidate < num_candidates; ++candidate) {
            const double score = scores[slot * num_candidates + candidate];
            if (slot == direction || score == MINUS_INFINITY) {
                next[candidate].score = score;
                continue;
            }
            for (std::size_t earlier_candidate = 0; earlier_candidate < num_candidates; ++earlier_candidate) {
                const double uncoupled = earlier_chains[earlier_candidate].score + score;
                if (!(uncoupled + max_coupling > std::max(next[candidate].score, best))) continue;
                const double coupled =
                    uncoupled + coupling.score(direction, (*earlier_unigrams)[earlier_candidate], unigrams[candidate]);
                if (coupled > next[candidate].score) next[candidate] = {coupled, earlier_candidate};
            }
            if (slot + directions >= step_size) best = std::max(best, next[candidate].score);
        }
        chains.insert(chains.end(), next.begin(), next.end());
        earlier_unigrams.emplace(std::move(unigrams));
    }
    const Chain* ends = chains.data() + chains.size() - num_candidates;
    std::size_t best = 0;
    for (std::size_t candidate = 1; candidate < num_candidates; ++candidate)
        if (ends[candidate].score > ends[best].score) best = candidate;
    for (std::size_t step = chains.size() / num_candidates; step-- > 0;) {
        const std::size_t slot = direction + step * coupling.right_to_left.size();
        chosen[slot] = ids[slot * num_candidates + best], chosen_scores[slot] = scores[slot * num_candidates + best];
        best = chains[step * num_candidates + best].earlier_candidate;
    }
}

void JointStep::choose(const float* scores, const std::int64_t* ids, const float* eos_scores, std::size_t step_size,
                       std::int64_t eos, float* chosen_scores, std::int64_t* chosen) const {
    for (std::size_t slot = 0; slot < step_size; ++slot)
        chosen[slot] = ids[slot * num_candidates], chosen_scores[slot] = scores[slot * num_candidates];
    if (coupling.ngram != nullptr)
        for (std::size_t direction = 0; direction < coupling.right_to_left.size() && direction < step_size; ++direction)
            choose_chain(scores, ids, direction, step_size, chosen_scores, chosen);
    double continue_probability = 1.0;
    for (std::size_t slot = 0; slot < step_size; ++slot) {
        continue_probability *= 1.0 - std::exp(static_cast<double>(eos_scores[slot]));
        if (end_threshold > 0.0 ? 1.0 - continue_probability < end_threshold : eos_scores[slot] < scores[slot * num_candidates])
            continue;
        chosen[slot] = eos, chosen_scores[slot] = eos_scores[slot];
        return;
    }
}

}  // namespace fewstep
