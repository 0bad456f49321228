// The levels of n-grams from histories in suffix order, which come from a text in memory or from counts on disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/ops/ngram/counts.h"
#include "csrc/ops/ngram/positions.h"

namespace fewstep {

inline constexpr std::size_t NGRAM_RANGES = 16;  // for each thread

// Builds levels from `histories`, which has
//     ranges(parts)       ranges of whole last words, in order, which cover all histories
//     walk(range, at)     calls at(history, number of words shared with the history before it, count), in suffix order
//     last()              occurrences of the last n-gram of each order, within its sentence
template <typename Histories>
class LevelBuilder {
  public:
    LevelBuilder(const Histories& histories, std::size_t words, int order, int threads)
        : histories_(histories),
          ranges_(histories.ranges(static_cast<std::size_t>(threads) * NGRAM_RANGES)),
          starts_(ranges_.size()),
          order_(order),
          threads_(threads) {
        for_each_range([&](std::size_t range) { starts_[range] = distinct(range); });
        for (PerOrder& start : starts_) {
            for (int n = 1; n <= order_; ++n) sizes_[n] += std::exchange(start[n], sizes_[n]);
        }
        sizes_[1] = words;
    }

    // The number of distinct n-grams of all orders.
    std::uint64_t ngrams() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t size : sizes_) sum += size;
        return sum;
    }

    std::vector<SuffixLevel> build(const std::vector<std::uint64_t>& prune) const {
        std::vector<SuffixLevel> levels(static_cast<std::size_t>(order_));
        std::vector<Ids> seen(levels.size());
        for (int n = 1; n <= order_; ++n) {
            SuffixLevel& level = levels[n - 1];
            level.first_word.resize(sizes_[n]);
            level.count.resize(sizes_[n]);
            if (n < order_) level.extensions.resize(sizes_[n] + 1);
            if (prune[n - 1] > 0) seen[n - 1].resize(sizes_[n]);
        }
        for_each_range([&](std::size_t range) { fill(range, levels, seen); });
        for (std::uint32_t id = 0; id < NGRAM_SPECIAL; ++id) levels[0].first_word[id] = id;
        const PerOrder last = histories_.last();
        for (int n = 1; n <= order_; ++n) {
            if (n < order_) levels[n - 1].extensions.back() = static_cast<std::uint32_t>(sizes_[n + 1]);
            if (n < order_) levels[n - 1].last_occurrences = static_cast<std::uint32_t>(last[n]);
            prune_level(levels[n - 1], seen[n - 1], prune[n - 1], n == 1);
        }
        return levels;
    }

  private:
    using Ids = std::vector<std::uint32_t>;

    template <typename Body>
    void for_each_range(const Body& body) const {
        parallel_for(static_cast<std::int64_t>(ranges_.size()), threads_,
                     [&](std::int64_t range, int) { body(static_cast<std::size_t>(range)); });
    }

    PerOrder distinct(std::size_t range) const {
        PerOrder found{};
        histories_.walk(ranges_[range], [&](const NgramHistory& history, int shared, std::uint32_t) {
            for (int n = shared + 1; n <= history.length; ++n) ++found[n];
        });
        return found;
    }

    // Write the n-grams of a range to `levels`; `seen[n - 1]` counts occurrences where requested.
    void fill(std::size_t range, std::vector<SuffixLevel>& levels, std::vector<Ids>& seen) const {
        PerOrder next = starts_[range], current{};
        histories_.walk(ranges_[range], [&](const NgramHistory& history, int shared, std::uint32_t count) {
            for (int n = shared + 1; n <= history.length; ++n) {
                current[n] = n == 1 ? history.words[0] : next[n]++;
                levels[n - 1].first_word[current[n]] = history.words[n - 1];
                if (n < order_) levels[n - 1].extensions[current[n]] = static_cast<std::uint32_t>(next[n + 1]);
                if (n > 1) ++levels[n - 2].count[current[n - 1]];
            }
            levels[history.length - 1].count[current[history.length]] += count;
            for (int n = 1; n <= history.length; ++n) {
                if (!seen[n - 1].empty()) seen[n - 1][current[n]] += count;
            }
        });
    }

    static void prune_level(SuffixLevel& level, const Ids& seen, std::uint64_t most, bool unigrams) {
        if (seen.empty()) return;
        level.pruned.resize(seen.size());
        for (std::size_t i = unigrams ? std::size_t{NGRAM_SPECIAL} : 0; i < seen.size(); ++i) level.pruned[i] = seen[i] <= most;
    }

    const Histories& histories_;
    const std::vector<typename Histories::Range> ranges_;
    std::vector<PerOrder> starts_;  // by range and order: the number of n-grams before it
    PerOrder sizes_{};
    const int order_, threads_;
};

}  // namespace fewstep
