// The words that end at a place in a text, and numbers by order of n-grams.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// The last words before a place, the last one first: up to the order, or up to <s>.
struct NgramHistory {
    std::array<std::uint32_t, NGRAM_MAX_ORDER> words{};
    int length = 0;

    // The number of last words that two histories have in common.
    int shared(const NgramHistory& other) const {
        const int shorter = std::min(length, other.length);
        return static_cast<int>(std::mismatch(words.begin(), words.begin() + shorter, other.words.begin()).first - words.begin());
    }
};

using PerOrder = std::array<std::uint64_t, NGRAM_MAX_ORDER + 1>;  // by order

}  // namespace fewstep
