// Greedy and beam search with a Transformer that generates z tokens a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/transformer.h"
#include "csrc/inference/stepwise/beam.h"
#include "csrc/inference/stepwise/ensemble.h"
#include "csrc/inference/stepwise/joint_step.h"

namespace fewstep {

// Both searches return tokens in generation order without EOS. `limits`: maximum lengths in tokens with EOS. The batch is
// partitioned among `threads`; the result of a sentence does not depend on the others.

// The most probable token of each slot. The score counts the slots up to the first EOS (per_direction: all slots of every step)
// within the limit. Of `options`, beam parameters are ignored. A `joint` step (may be null) replaces the independent choice; the
// margin is then infinite.
std::vector<Outcome> greedy(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                            const BeamOptions& options, const SearchRules& rules, const JointStep* joint, int threads);

// The search of csrc/inference/stepwise/beam.h over the `top_k` best tokens of each slot.
std::vector<Outcome> beam_search(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                                 const BeamOptions& options, const SearchRules& rules, std::size_t top_k, bool separate_eos,
                                 int threads);

}  // namespace fewstep
