// The lattice of one sentence during decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/buffer.h"
#include "csrc/inference/gemm/packed_matrix.h"
#include "csrc/inference/lattice/network.h"

namespace fewstep {

// Candidates, folded cross-attention and scores.
struct SentenceLattice {
    const std::int64_t* token_ids;
    const double* log_probs;
    std::size_t slots, min_length, max_length;  // number of slots N; limits in tokens
    std::size_t candidates, width;              // K, and K rounded up
    std::vector<std::size_t>
        counts;  // by slot: number of candidates, also of the slot after the last token if EOS competes with them
    std::vector<std::vector<std::size_t>> selected;  // by slot: selected candidates; empty if none were dropped
    std::vector<std::int64_t> selected_ids;
    std::vector<double> selected_log_probs;
    std::size_t length;
    std::vector<LatticeCrossCache> cross_cache;
    PackedMatrix union_vocabulary;  // EOS and all candidates, for Normaliser::UNION
    Buffer start, edges, exits;     // [width], [max_length-1,K,width], [max_length,width]

    const std::int64_t* tokens(std::size_t slot) const { return token_ids + slot * candidates; }
    std::size_t count_candidates(std::size_t slot) const;  // number of candidates of a slot
    std::size_t original_index(std::size_t slot, std::size_t k) const { return selected.empty() ? k : selected[slot][k]; }
    // Drop all candidates that are not selected.
    void apply_selection();
    float* edge_row(std::size_t slot, std::size_t candidate) { return edges.data() + (slot * candidates + candidate) * width; }
};

}  // namespace fewstep
