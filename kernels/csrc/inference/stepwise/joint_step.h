// A greedy step whose slots are chosen jointly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

// Coupling of adjacent tokens that are generated in the same step, by a bigram score.

class NgramScorer;

// A token with its n-gram state and its unigram log-probability.
struct Unigram {
    std::uint32_t id = 0, state = 0;
    double log_prob = 0.0;
};

// Slots d, d + h, d + 2h, ... of a step belong to direction d of h and are adjacent in the output. Two adjacent tokens add
//     weight (log p(right | left) - log p(right))
// to the score of a hypothesis, by an n-gram model. Without it, slots are chosen independently, and adjacent tokens may repeat or
// contradict each other.
struct BigramCoupling {
    const NgramScorer* ngram = nullptr;  // null: no coupling
    double weight = 0.0;
    std::vector<char> right_to_left = {0};  // by direction: its tokens are written from right to left

    Unigram unigram(std::int64_t token) const;
    // The coupling score of a token with the previous token of its direction.
    double score(std::size_t direction, const Unigram& earlier, const Unigram& token) const;
    // An upper bound of the score: p(right | left) = 1 for the least probable unigram.
    double max_score() const;
};

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
