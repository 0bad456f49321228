// An n-gram model as plain arrays, the result of estimation and of reading ARPA files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fewstep {

// The n-grams of one order, sorted by context (its index in the previous level), then by last word; order 1 by word.
struct NgramLevel {
    std::vector<std::uint32_t> word;  // the last one
    std::vector<float> log_prob;      // to base 10; NaN: the back-off probability
    std::vector<float> backoff;       // to base 10; empty for the highest order
    std::vector<std::uint32_t>
        first;  // n-gram i is the context of [first[i], first[i + 1]) of the next order; empty for the highest order

    std::size_t size() const { return word.size(); }
};

struct NgramTable {
    std::vector<std::string> words;  // by id; special words first
    std::vector<NgramLevel> levels;
};

}  // namespace fewstep
