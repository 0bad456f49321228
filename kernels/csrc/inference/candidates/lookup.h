// Look-up of candidate lattices: the most probable target pieces of each slot according to the counts.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/inference/candidates/tables.h"

namespace fewstep {

struct LookupOptions {
    std::int64_t candidates = 64;  // K
    double min_prior = 0.0;        // skip positions with P(s | S, t) below this; 0: none
    int threads = 1;
};

// Source sentences, padded: sentence b has the pieces ids[b * width .. b * width + lengths[b]) and slots[b] slots.
struct SourcePieces {
    std::span<const std::int64_t> ids, lengths, slots;
    std::int64_t width = 0;
};

// For sentence b and slot t < slots[b] find the K target pieces y with the largest
//     P(y | x, t) = sum over s < S of  P(y | x_s, s - t) P(s | S, t)              summed in the order of s, in double
// with the backoff of the tables in P(y | x_s, s - t), ordered by probability (descending) and piece (ascending): token_ids and
// log_probs [B, N, K], padded with -1 and minus infinity. P(s | S, t) is
//   - that of the table, if the cell (S, t) has a link;
//   - else that of (S', t) for the nearest S' with |S' - S| <= 3 (the shorter of two) whose cell has a link to some s < S;
//   - else exp(-tension |(s + 1) / S - (t + 1) / W|), normalised over |s - t| <= R, with W the predicted length L - 1 >= 1.
// Probabilities may sum to less than 1: dropped and unseen links and positions beyond the sentence are missing. Throws
// std::invalid_argument for invalid arguments, pieces outside the source vocabulary and damaged tables.
void lattice_candidates(const CandidateTables& tables, const SourcePieces& sources, const LookupOptions& options,
                        std::int64_t num_slots, std::span<std::int64_t> token_ids, std::span<double> log_probs);

}  // namespace fewstep
