#include "csrc/inference/lattice/sentence_lattice.h"

#include <algorithm>
#include <limits>

namespace fewstep {

std::size_t SentenceLattice::counted(std::size_t slot) const {
    return static_cast<std::size_t>(std::find_if(words(slot), words(slot) + candidates, [](std::int64_t word) { return word < 0; }) - words(slot));
}

void SentenceLattice::keep_chosen() {
    std::size_t most = 1;
    for (const auto& one : chosen) most = std::max(most, one.size());
    kept_ids.assign(chosen.size() * most, -1), kept_log_probs.assign(chosen.size() * most, -std::numeric_limits<double>::infinity());
    for (std::size_t slot = 0; slot < chosen.size(); ++slot)
        for (std::size_t k = 0; k < chosen[slot].size(); ++k) {
            kept_ids[slot * most + k] = words(slot)[chosen[slot][k]];
            kept_log_probs[slot * most + k] = log_probs[slot * candidates + chosen[slot][k]];
        }
    token_ids = kept_ids.data(), log_probs = kept_log_probs.data();
    slots = chosen.size(), candidates = most;
}

}  // namespace fewstep
