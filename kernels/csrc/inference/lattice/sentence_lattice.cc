#include "csrc/inference/lattice/sentence_lattice.h"

#include <algorithm>
#include <limits>

namespace fewstep {

std::size_t SentenceLattice::count_candidates(std::size_t slot) const {
    return static_cast<std::size_t>(
        std::find_if(tokens(slot), tokens(slot) + candidates, [](std::int64_t token) { return token < 0; }) - tokens(slot));
}

void SentenceLattice::apply_selection() {
    std::size_t max_selected = 1;
    for (const auto& one : selected) max_selected = std::max(max_selected, one.size());
    selected_ids.assign(selected.size() * max_selected, -1),
        selected_log_probs.assign(selected.size() * max_selected, -std::numeric_limits<double>::infinity());
    for (std::size_t slot = 0; slot < selected.size(); ++slot)
        for (std::size_t k = 0; k < selected[slot].size(); ++k) {
            selected_ids[slot * max_selected + k] = tokens(slot)[selected[slot][k]];
            selected_log_probs[slot * max_selected + k] = log_probs[slot * candidates + selected[slot][k]];
        }
    token_ids = selected_ids.data(), log_probs = selected_log_probs.data();
    slots = selected.size(), candidates = max_selected;
}

}  // namespace fewstep
