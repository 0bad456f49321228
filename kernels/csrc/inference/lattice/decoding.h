// Decoding of sequence-to-lattice models (Deng and Rush 2021): encoder, candidate look-up, one scoring pass over all slots, exact
// search.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/candidates/tables.h"
#include "csrc/inference/lattice/scoring.h"
#include "csrc/inference/lattice/viterbi.h"

namespace fewstep {

// The candidates of B sentences, best first, padded with -1.
struct LatticeCandidates {
    const std::int64_t* token_ids;                // [B,N,K]
    const double* log_probs;                      // [B,N,K]
    const std::int64_t *min_length, *max_length;  // [B] in tokens; both 0 for an empty output
    std::size_t slots, candidates;                // N, K
};

// The tables and options of candidate look-up.
struct LatticeLookup {
    const CandidateTables* tables;
    std::int64_t candidates, window;
    double min_prior;
};

struct LatticeOutcome {
    std::vector<std::int64_t> tokens;
    float score = 0.0F;  // minus infinity if there is no valid path
};

// The parts of decoding; their times are thread seconds, summed over the threads.
enum LatticePart { ENCODING, LOOKUP, SCORING, SEARCH, LATTICE_PARTS };
using LatticeSeconds = std::array<double, LATTICE_PARTS>;

// Decode sources, which end in EOS, with candidates looked up for their tokens other than EOS. The result of a sentence does not
// depend on the others.
std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeLookup& lookup,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds);
// Decode with given candidates.
std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources,
                                            const LatticeCandidates& candidates, const LatticeRules& rules, int threads,
                                            LatticeSeconds& seconds);
// Compute the scores: start [B,K], edges [B,N-1,K,K] and exits [B,N,K], minus infinity beyond the slots and candidates of a
// sentence and for dropped candidates. Exits are scored at all slots, not only where a path may end.
void score_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates,
                    const LatticeRules& rules, int threads, float* start, float* edges, float* exits);

}  // namespace fewstep
