// The histories of a text in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// The words that end at a place in a text, and numbers by order of n-grams.

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

// The places of all words but <s> in a text, in suffix order.
class NgramPositions {
  public:
    using Range = std::pair<std::size_t, std::size_t>;

    // `ids` are sentences <s> words </s>, whose ids are below `words`; they are kept by reference, fewer than 2^32.
    NgramPositions(const std::vector<std::uint32_t>& ids, std::uint64_t sentences, std::size_t words, int order, int threads);

    std::size_t size() const { return positions_.size(); }

    // About `parts` ranges; positions with the same last word are in the same one.
    std::vector<Range> ranges(std::size_t parts) const;

    // Call at(history, number of words shared with the history before it in the range, 1).
    template <typename At>
    void walk(const Range& range, const At& at) const {
        NgramHistory before;
        for (std::size_t i = range.first; i < range.second; ++i) {
            const NgramHistory history = history_at(positions_[i], order_);
            at(history, history.shared(before), std::uint32_t{1});
            before = history;
        }
    }

    // By order: occurrences of the last n-gram within its sentence. There must be a position.
    PerOrder last() const;

  private:
    NgramHistory history_at(std::uint32_t position, int order) const {
        NgramHistory history;
        do {
            history.words[history.length] = ids_[position - static_cast<std::uint32_t>(history.length)];
        } while (history.words[history.length++] != NGRAM_BEGIN && history.length < order);
        return history;
    }

    const std::vector<std::uint32_t>& ids_;
    std::vector<std::uint32_t> positions_;
    const int order_;
};

}  // namespace fewstep
