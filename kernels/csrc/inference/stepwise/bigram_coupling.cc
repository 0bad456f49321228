#include "csrc/inference/stepwise/bigram_coupling.h"

#include <tuple>

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

}  // namespace fewstep
