// Decoding of sequence-to-lattice models (Deng and Rush 2021): encoder, candidates, one pass of scores over all slots, exact search.
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

// Candidates of B sentences: best first, -1 past them.
struct LatticeCandidates {
    const std::int64_t* token_ids;      // [B,N,K]
    const double* log_probs;            // [B,N,K]
    const std::int64_t *min_length, *max_length;   // [B] words; both 0 for a sentence without words
    std::size_t slots, candidates;      // N, K
};

// How candidates are looked up.
struct LatticeLookup {
    const CandidateTables* tables;
    std::int64_t candidates, window;
    double min_prior;
};

struct LatticeOutcome {
    std::vector<std::int64_t> tokens;
    float score = 0.0F;  // minus infinity where no path is possible
};

// Thread seconds spent on the parts of decoding, all threads together.
enum LatticePart { ENCODING, LOOKUP, SCORING, SEARCH, LATTICE_PARTS };
using LatticeSeconds = std::array<double, LATTICE_PARTS>;

// Sources with EOS; the candidates of their words without it are looked up. A sentence's outcome is a function of the sentence alone.
std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeLookup& lookup,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds);
// With candidates of the caller's.
std::vector<LatticeOutcome> decode_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates,
                                            const LatticeRules& rules, int threads, LatticeSeconds& seconds);
// The scores themselves: start [B,K], edges [B,N-1,K,K] and exits [B,N,K], minus infinity past a sentence's slots and candidates, and
// for those that are left out. All exits are scored, not only those where a path may end.
void score_lattices(const LatticeNetwork& network, const Sources& sources, const LatticeCandidates& candidates, const LatticeRules& rules,
                    int threads, float* start, float* edges, float* exits);

}  // namespace fewstep
