// How much likelier neighbours that are written in one step are side by side than by themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

class NgramScorer;

// A word by itself: its id, the state that it leaves and its log-probability where nothing is before it.
struct Unigram {
    std::uint32_t id = 0, state = 0;
    double log_prob = 0.0;
};

// Slots d, d + h, d + 2h, ... of a step are one direction's, neighbours in the output. Two of them are linked by
//     weight (log p(right | left) - log p(right))
// by the n-gram model: independently chosen, neighbours repeat or contradict each other.
struct BigramCoupling {
    const NgramScorer* ngram = nullptr;  // null: there are no links
    double weight = 0.0;
    std::vector<char> right_to_left = {0};    // by direction (h of them): its tokens come in the output before those written earlier

    Unigram unigram(std::int64_t token) const;
    // Of a word and the one that its direction wrote before.
    double score(std::size_t direction, const Unigram& earlier, const Unigram& token) const;
    // No link is above this: none is of a word that is certain behind another and the rarest by itself.
    double max_score() const;
};

}  // namespace fewstep
