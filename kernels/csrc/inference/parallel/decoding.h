// Decoding with all slots at once: targets of several lengths, Mask-Predict, and ranked slots for searches of alignments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/parallel/network.h"

namespace fewstep {

struct FillOptions {
    std::size_t candidates;  // lengths of each sentence
    bool around;             // those around the most probable one; else the most probable ones
    std::size_t iterations;  // passes of Mask-Predict
};

// A target with one token for each slot.
struct FilledTarget {
    std::vector<std::int64_t> ids;
    std::vector<float> log_probs;
};

// Return the targets of all lengths of each sentence, that of the most probable length first. They are bit-identical in any batch.
std::vector<std::vector<FilledTarget>> fill_slots(const ParallelNetwork& network, const Sources& sources,
                                                  const ParallelRules& rules, const FillOptions& options, int threads);

// The best tokens [slots,W] of each slot of a sentence, without the separator, and the log-probabilities [slots] of the separator.
struct RankedSlots {
    std::vector<float> scores;
    std::vector<std::int64_t> ids;
    std::vector<float> separators;
};

// Return the ranked slots of each sentence, with `num_tokens` tokens each. They are bit-identical in any batch.
std::vector<RankedSlots> rank_slots(const ParallelNetwork& network, const Sources& sources, const ParallelRules& rules,
                                    std::size_t num_tokens, int threads);

}  // namespace fewstep
