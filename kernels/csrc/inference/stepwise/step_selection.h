// Which continuations of a sentence's live hypotheses are best, in steps of z slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/stepwise/bigram_coupling.h"

namespace fewstep {

enum class Selection { EXACT, OUTER, DOUBLE_TOP_K };

// How a step is written and what ends an output.
struct StepRules {
    int beams = 1;               // K
    int step_size = 1;           // z
    bool per_direction = false;  // EOS in either slot ends the output and both slots count; else the first EOS ends it
    Selection selection = Selection::EXACT;
    std::int64_t eos = 2, pad = 0;
    BigramCoupling coupling = {};  // EXACT without per_direction: their links count in scores
};

// The best words of each slot of H hypotheses, in nats, best first; minus infinity: none.
struct SlotCandidates {
    const float* scores;      // [H,z,W]
    const std::int64_t* ids;  // [H,z,W]
    const float* eos;         // [H,z]; read where EOS is not among the words: EXACT without per_direction
    int num_candidates;                // W
};

// A continuation: `score` is the log-probability of hypothesis and step.
struct Continuation {
    double score;
    int parent;
    bool ends;
    std::vector<std::int64_t> tokens;  // z; pad after an EOS that ends the output, and beyond the longest output
};

struct Ranked {
    std::vector<Continuation> all;     // the first K + 1 (the approximations: what they keep), best first
    std::vector<Continuation> unfinished;  // the first K + 1 that do not end
};

// Given a hypothesis its slots are independent, so a continuation scores the hypothesis plus the sum of its slots. `room` slots are
// left before the longest output; those beyond it write nothing, for nothing.
//
// EXACT: what stands after an EOS costs nothing. Slot by slot, partial continuations are ranked by their score plus that of their
//     best completion; one that is dropped is beaten by K + 1 whole ones. Needs the first K + 1 words but EOS of each slot
//     (per_direction: the first K + 2, EOS among them). With links, which completions are ranked without, more than K + 1 are kept
//     on the way, and what is found need not be the very best.
// OUTER (Zhang et al. 2020, algorithm 1): sums of the first K words of each slot, cut to K before each further slot; the first
//     2K + 1 of all. Every slot counts.
// DOUBLE_TOP_K (Imamura and Sumita 2020, section 3.3): the first 2K left words over all hypotheses, then the first 3K pairs over
//     these. Needs the first 3K words of each slot.
Ranked select(const StepRules& rules, const SlotCandidates& slots, std::span<const double> live, std::int64_t remaining, ThreadTeam& team = ThreadTeam::single());

}  // namespace fewstep
