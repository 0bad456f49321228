// A greedy step of several tokens whose slots know of each other: independently chosen, neighbours repeat or contradict each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/stepwise/bigram_coupling.h"

namespace fewstep {

// Of each slot the best W words are offered, and of each direction the chain is taken that has the highest sum of log-probabilities and
// links between neighbours.
struct JointStep {
    BigramCoupling coupling;               // without links: each slot takes its best word
    // Above 0: the output ends at the first slot by which it has ended with at least this probability. 0: where EOS is the likeliest.
    double end_threshold = 0.0;
    std::size_t num_candidates = 4;               // W

    // From the best words but EOS [z,W], best first, and log-probabilities of EOS [z], to words [z] and their log-probabilities.
    void choose(const float* scores, const std::int64_t* ids, const float* eos_scores, std::size_t step_size, std::int64_t eos,
                float* chosen_scores, std::int64_t* chosen) const;

 private:
    void choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size, float* chosen_scores,
                      std::int64_t* chosen) const;
};

}  // namespace fewstep
