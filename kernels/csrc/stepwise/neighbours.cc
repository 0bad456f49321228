#include "csrc/stepwise/neighbours.h"

#include <utility>

#include "csrc/ngram/model.h"

namespace fewstep {

double Neighbours::link(std::size_t direction, std::int64_t before, std::int64_t word) const {
    auto left = static_cast<std::uint32_t>(before), right = static_cast<std::uint32_t>(word);
    if (leftward[direction]) std::swap(left, right);
    NgramState state = NgramModel::EMPTY, after = NgramModel::EMPTY;
    ngram->score(NgramModel::EMPTY, left, state);
    return weight * (ngram->score(state, right, after) - ngram->score(NgramModel::EMPTY, right, after));
}

}  // namespace fewstep
