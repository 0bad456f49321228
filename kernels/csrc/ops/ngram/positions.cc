#include "csrc/ops/ngram/positions.h"

#include <algorithm>

#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

using Ids = std::vector<std::uint32_t>;

// Stable counting sort of `from` by key(position) < keys.
template <typename Key>
void counting_sort(const Ids& from, Ids& to, std::size_t keys, int threads, const Key& key) {
    const auto begin = [&](std::int64_t block) { return from.size() * static_cast<std::size_t>(block) / threads; };
    std::vector<Ids> next(static_cast<std::size_t>(threads), Ids(keys));
    parallel_for(threads, threads, [&](std::int64_t block, int) {
        for (std::size_t i = begin(block); i < begin(block + 1); ++i) ++next[block][key(from[i])];
    });
    std::uint32_t start = 0;
    for (std::size_t k = 0; k < keys; ++k) {
        for (Ids& counts : next) start += std::exchange(counts[k], start);
    }
    parallel_for(threads, threads, [&](std::int64_t block, int) {
        for (std::size_t i = begin(block); i < begin(block + 1); ++i) to[next[block][key(from[i])]++] = from[i];
    });
}

}  // namespace

// Words before <s> belong to another sentence; they order only n-grams that are equal up to <s> and have no effect.
NgramPositions::NgramPositions(const Ids& ids, std::uint64_t sentences, std::size_t words, int order, int threads)
    : ids_(ids), order_(order) {
    Ids sorted;
    positions_.reserve(ids.size() - sentences);
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != NGRAM_BEGIN) positions_.push_back(i);
    }
    sorted.resize(positions_.size());
    for (std::uint32_t back = static_cast<std::uint32_t>(order); back-- > 0;) {
        counting_sort(positions_, sorted, words, threads,
                      [&](std::uint32_t position) { return position < back ? NGRAM_BEGIN : ids[position - back]; });
        positions_.swap(sorted);
    }
}

std::vector<NgramPositions::Range> NgramPositions::ranges(std::size_t parts) const {
    std::vector<Range> found;
    std::size_t begin = 0;
    for (std::size_t part = 1; part <= parts; ++part) {
        std::size_t end = positions_.size() * part / parts;
        while (end > 0 && end < positions_.size() && ids_[positions_[end]] == ids_[positions_[end - 1]]) ++end;
        if (end > begin) found.emplace_back(std::exchange(begin, end), end);
    }
    return found;
}

PerOrder NgramPositions::last() const {
    const NgramHistory last = history_at(positions_.back(), order_);
    PerOrder found{};
    std::size_t begin = 0;
    for (int n = 1; n <= last.length; ++n) {
        const auto differs = [&](std::uint32_t position) { return history_at(position, n).shared(last) < n; };
        begin = static_cast<std::size_t>(
            std::partition_point(positions_.begin() + static_cast<std::ptrdiff_t>(begin), positions_.end(), differs) -
            positions_.begin());
        found[n] = positions_.size() - begin;
    }
    return found;
}

}  // namespace fewstep
