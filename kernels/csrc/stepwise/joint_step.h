// A greedy step of several tokens whose slots know of each other: independently chosen, neighbours repeat or contradict each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

class NgramScorer;

// Slots d, d + h, d + 2h, ... of a step are one direction's, neighbours in the output. Of each the best W words are offered, and the
// chain is taken that has the highest  sum_i log p_i(w_i) + weight sum_i (log p(right | left) - log p(right)),  the latter by the
// n-gram model: how much likelier two words are side by side than by themselves.
struct JointStep {
    const NgramScorer* ngram = nullptr;  // null: each slot takes its best word
    double weight = 0.0;
    std::vector<char> leftward;          // by direction (h of them): its tokens come in the output before those written earlier
    // Above 0: the output ends at the first slot by which it has ended with at least this probability. 0: where EOS is the likeliest.
    double end = 0.0;
    std::size_t words = 4;               // W

    // From the best words but EOS [z,W], best first, and log-probabilities of EOS [z], to words [z] and their log-probabilities.
    void choose(const float* scores, const std::int64_t* ids, const float* eos_scores, std::size_t step_size, std::int64_t eos,
                float* chosen_scores, std::int64_t* chosen) const;

 private:
    void choose_chain(const float* scores, const std::int64_t* ids, std::size_t direction, std::size_t step_size, float* chosen_scores,
                      std::int64_t* chosen) const;
    double link(bool leftward, std::int64_t before, std::int64_t word) const;
};

}  // namespace fewstep
