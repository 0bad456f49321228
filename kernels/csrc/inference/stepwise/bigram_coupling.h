// Coupling of adjacent tokens that are generated in the same step, by a bigram score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

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

}  // namespace fewstep
