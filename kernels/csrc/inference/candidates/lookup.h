// The candidate lattice of source sentences: for each slot the target pieces that the counts hold most probable.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/inference/candidates/tables.h"

namespace fewstep {

struct LookupOptions {
    std::int64_t candidates = 64;  // K
    double min_prior = 0.0;      // positions with P(s | S, t) below this are passed over; 0 passes over none
    int threads = 1;
};

// Source sentences, padded: sentence b has the pieces ids[b * width .. b * width + lengths[b]) and gets slots[b] slots.
struct SourcePieces {
    std::span<const std::int64_t> ids, lengths, slots;
    std::int64_t width = 0;
};

// For sentence b and slot t < slots[b] the K target pieces y with the largest
//
//     P(y | x, t) = sum over s < S of  P(y | x_s, s - t) P(s | S, t)              summed in the order of s, in double
//
// with the tables' backoff in P(y | x_s, s - t),
// by probability (descending) and piece (ascending): token_ids and log_probs [B, N, K]. Where fewer have any probability, and at
// slots past slots[b], -1 and -infinity. P(s | S, t) is
//   - that of the table, where the cell (S, t) has a link;
//   - else that of (S', t) for the nearest S' with |S' - S| <= 3, the shorter of two, whose cell has a link to some s < S;
//   - else exp(-tension |(s + 1) / S - (t + 1) / W|) over its sum for |s - t| <= R, with W the predicted words, L - 1 >= 1.
// Sums may be less than 1: links that were cut or never seen, and positions past the sentence, are missing from them.
// Throws std::invalid_argument for arguments that do not fit, pieces outside the source vocabulary and damaged tables.
void lattice_candidates(const CandidateTables& tables, const SourcePieces& sources, const LookupOptions& options, std::int64_t num_slots,
                        std::span<std::int64_t> token_ids, std::span<double> log_probs);

}  // namespace fewstep
