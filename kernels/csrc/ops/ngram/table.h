// An n-gram model as plain arrays: what estimation and ARPA files give, and what the model file is built from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fewstep {

// n-grams of one order, sorted by their context (its place in the level before) and then by last word; order 1 by word.
struct NgramLevel {
    std::vector<std::uint32_t> word;   // the last one
    std::vector<float> log_prob;       // to base 10; NaN: what backing off gives
    std::vector<float> backoff;        // to base 10; empty for the highest order
    std::vector<std::uint32_t> first;  // n-gram i is the context of [first[i], first[i + 1]) of the next order; likewise

    std::size_t size() const { return word.size(); }
};

struct NgramTable {
    std::vector<std::string> words;  // by id; the special ones first
    std::vector<NgramLevel> levels;
};

}  // namespace fewstep
