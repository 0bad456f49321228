// Greedy and beam search with a Transformer that writes z tokens a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/lexicon.h"
#include "csrc/inference/stepwise/beam.h"
#include "csrc/inference/stepwise/joint_step.h"
#include "csrc/inference/stepwise/ensemble.h"

namespace fewstep {

// Both searches return, for each sentence, what was found in writing order without EOS. `limits`: longest outputs in tokens with EOS.
// Each of `threads` takes its share of the sentences from start to end; the outcome of a sentence does not depend on the others.

// The likeliest word in each slot. A hypothesis is charged for its slots up to the first EOS (per_direction: for all of every
// step) and within its limit. `options.rules.beams` and what concerns a beam is not read. With `joint` (else null) it chooses steps;
// there is no margin then.
std::vector<Outcome> greedy(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                            const BeamOptions& options, const SearchRules& rules, const JointStep* joint, int threads);

// The search of `csrc/stepwise/beam.h`; `wanted` words of each slot are ranked.
std::vector<Outcome> beam_search(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                                 const BeamOptions& options, const SearchRules& rules, std::size_t top_k, bool separate_eos, int threads);

}  // namespace fewstep
