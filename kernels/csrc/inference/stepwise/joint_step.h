// A greedy step whose slots are chosen jointly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/stepwise/bigram_coupling.h"

namespace fewstep {

// For each direction, the Viterbi path over the W best candidates of each slot: the chain with the highest sum of log-probabilities
// and coupling scores.
struct JointStep {
    BigramCoupling coupling;  // without an n-gram model each slot takes its best token
    // If positive, the output ends at the first slot by which it has ended with at least this probability, 1 - prod_i (1 -
    // p_i(EOS)). If 0, it ends where EOS is the most probable token.
    double end_threshold = 0.0;
    std::size_t num_candidates = 4;  // W

    // From the top tokens other than EOS [z,W], best first, and the log-probabilities of EOS [z], choose tokens [z] and return
    // their log-probabilities.
    void choose(const float* scores, const std::int64_t* ids, const float* eos_scores, std::size_t step_size, std::int64_t eos,
                float* chosen_scores, std::int64_t* chosen) const;

  private:
    void choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size,
                      float* chosen_scores, std::int64_t* chosen) const;
};

}  // namespace fewstep
