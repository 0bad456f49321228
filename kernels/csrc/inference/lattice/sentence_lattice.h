// The lattice of one sentence, as decoding builds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/buffer.h"
#include "csrc/inference/lattice/network.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// Everything about a sentence: candidates, what rows read of the source, scores.
struct SentenceLattice {
    const std::int64_t* token_ids;
    const double* log_probs;
    std::size_t slots, min_length, max_length;              // N that there are; words
    std::size_t candidates, width;               // K, and K rounded up
    std::vector<std::size_t> counts;             // candidates of a slot, also of that behind the last where EOS competes with them
    std::vector<std::vector<std::size_t>> selected;  // of the candidates of each slot; empty where none is left out
    std::vector<std::int64_t> selected_ids;
    std::vector<double> selected_log_probs;
    std::size_t length;
    std::vector<LatticeCrossCache> cross_cache;
    PackedMatrix union_vocabulary;                       // EOS and all candidates, for Normaliser::UNION
    Buffer start, edges, exits;                  // [width], [most-1,K,width], [most,width]

    const std::int64_t* tokens(std::size_t slot) const { return token_ids + slot * candidates; }
    std::size_t count_candidates(std::size_t slot) const;  // candidates
    std::size_t position(std::size_t slot, std::size_t k) const { return selected.empty() ? k : selected[slot][k]; }
    // Leaves out all candidates that are not chosen.
    void apply_selection();
    float* edge_row(std::size_t slot, std::size_t candidate) { return edges.data() + (slot * candidates + candidate) * width; }
};

}  // namespace fewstep
