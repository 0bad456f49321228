#include "csrc/inference/stepwise/bigram_coupling.h"

#include <tuple>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

LoneWord Neighbours::alone(std::int64_t word) const {
    LoneWord found{static_cast<std::uint32_t>(word)};
    found.log_prob = ngram->score(NgramModel::EMPTY, found.id, found.state);
    return found;
}

double Neighbours::link(std::size_t direction, const LoneWord& before, const LoneWord& word) const {
    const auto& [left, right] = leftward[direction] ? std::tie(word, before) : std::tie(before, word);
    NgramState after = NgramModel::EMPTY;
    return weight * (ngram->score(left.state, right.id, after) - right.log_prob);
}

double Neighbours::most() const { return ngram == nullptr ? 0.0 : -weight * ngram->rarest(); }

}  // namespace fewstep
