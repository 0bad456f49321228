// The best continuations of the hypotheses of a sentence, in steps of z slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/thread_team.h"
#include "csrc/inference/stepwise/joint_step.h"

namespace fewstep {

enum class Selection { EXACT, OUTER, OUTER_AUTHORS, DOUBLE_TOP_K };

// The layout of a step and the end of an output.
struct StepRules {
    int beams = 1;               // K
    int step_size = 1;           // z
    bool per_direction = false;  // an EOS in any slot ends the output, and all slots of the step count; else the first EOS ends it
    Selection selection = Selection::EXACT;
    std::int64_t eos = 2, pad = 0;
    BigramCoupling coupling = {};  // counts with EXACT and without per_direction

    // Every slot of a step counts, in scores, in the length and at the limit, which is then a whole number of steps.
    bool whole_steps() const { return selection == Selection::OUTER || selection == Selection::OUTER_AUTHORS; }
    // The number of continuations of a step, of all hypotheses of a sentence, that may be finished.
    std::size_t num_kept() const {
        const auto k = static_cast<std::size_t>(beams);
        return selection == Selection::OUTER ? k * k : selection == Selection::OUTER_AUTHORS ? 2 * k : k;
    }
};

// The candidates of each slot of H hypotheses, in nats, best first, padded with minus infinity.
struct SlotCandidates {
    const float* scores;      // [H,z,W]
    const std::int64_t* ids;  // [H,z,W]
    const float* eos;         // [H,z]; read if EOS is not among the candidates: EXACT without per_direction
    int num_candidates;       // W
};

// A continuation; `score` is the log-probability of the hypothesis and the step.
struct Continuation {
    double score;
    int parent;
    bool ends;
    std::vector<std::int64_t> tokens;  // [z]; pad after an EOS that ends the output, and beyond the limit
};

struct Ranked {
    std::vector<Continuation> all;  // the first num_kept() + 1 (OUTER: num_kept(), DOUBLE_TOP_K: 3K), best first
    // The first K + 1 that do not end; OUTER_AUTHORS: among the first num_kept().
    std::vector<Continuation> unfinished;
};

// The slots of a hypothesis are conditionally independent, so the score of a continuation is the score of the hypothesis plus the
// sum over its slots (plus coupling). `remaining` slots are left before the limit; slots beyond it are padded and cost nothing.
// EXACT: slots after an EOS cost nothing. Slot by slot, partial continuations are ranked by their score plus an upper bound of
//     their completion; a dropped one is dominated by K + 1 complete ones. Needs the first K + 1 tokens other than EOS of each slot
//     (per_direction: the first K + 2, EOS included). With coupling, which the bound ignores, more than K + 1 are kept, and the
//     result may not be optimal.
// OUTER (Zhang et al. 2020, algorithm 1): sums of the first K tokens of each slot, cut to K before each further slot and after the
//     last: K continuations of each hypothesis. Every slot counts.
// OUTER_AUTHORS (the program of the authors of the same paper): the sums are not cut after the last slot; the first 2K of all.
// DOUBLE_TOP_K (Imamura and Sumita 2020, section 3.3): the first 2K left tokens over all hypotheses, then the first 3K pairs over
//     these. Needs the first 3K tokens of each slot.
Ranked select(const StepRules& rules, const SlotCandidates& slots, std::span<const double> live, std::int64_t remaining,
              ThreadTeam& team = ThreadTeam::single());

}  // namespace fewstep
