#include "csrc/ops/ngram/counts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

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

// The positions of all words but <s>, sorted by the `order` words that end there, last word first. Words before <s> belong to
// another sentence; they order only n-grams that are equal up to <s> and have no effect.
Ids sort_positions(const NgramCorpus& corpus, int order, int threads) {
    const Ids& ids = corpus.ids;
    Ids positions, sorted;
    positions.reserve(ids.size() - corpus.sentences);
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != NGRAM_BEGIN) positions.push_back(i);
    }
    sorted.resize(positions.size());
    for (std::uint32_t back = static_cast<std::uint32_t>(order); back-- > 0;) {
        counting_sort(positions, sorted, corpus.words.size(), threads,
                      [&](std::uint32_t position) { return position < back ? NGRAM_BEGIN : ids[position - back]; });
        positions.swap(sorted);
    }
    return positions;
}

// The words that end at a position, in reverse order, up to `order` words or to <s>.
struct History {
    std::array<std::uint32_t, NGRAM_MAX_ORDER> words{};
    int length = 0;

    History() = default;
    History(const Ids& ids, std::uint32_t position, int order) {
        do {
            words[length] = ids[position - static_cast<std::uint32_t>(length)];
        } while (words[length++] != NGRAM_BEGIN && length < order);
    }
    int shared(const History& other) const {
        const int shorter = std::min(length, other.length);
        return static_cast<int>(std::mismatch(words.begin(), words.begin() + shorter, other.words.begin()).first - words.begin());
    }
};

using PerOrder = std::array<std::uint64_t, NGRAM_MAX_ORDER + 1>;  // by order

struct Counter {
    const Ids& ids;
    const Ids& positions;
    const int order;

    // Call at(history, number of words shared with the previous history) for [begin, end) of the sorted positions.
    template <typename At>
    void walk(std::size_t begin, std::size_t end, const At& at) const {
        History before;
        for (std::size_t i = begin; i < end; ++i) {
            const History history(ids, positions[i], order);
            at(history, history.shared(before));
            before = history;
        }
    }

    // Split the positions into about `parts` ranges; positions with the same last word stay together.
    std::vector<std::size_t> ranges(std::size_t parts) const {
        std::vector<std::size_t> starts{0};
        for (std::size_t part = 1; part < parts; ++part) {
            std::size_t start = positions.size() * part / parts;
            while (start > 0 && start < positions.size() && ids[positions[start]] == ids[positions[start - 1]]) ++start;
            if (start > starts.back()) starts.push_back(start);
        }
        if (positions.size() > starts.back()) starts.push_back(positions.size());
        return starts;
    }

    PerOrder distinct(std::size_t begin, std::size_t end) const {
        PerOrder found{};
        walk(begin, end, [&](const History& history, int shared) {
            for (int n = shared + 1; n <= history.length; ++n) ++found[n];
        });
        return found;
    }

    // Write the n-grams of a range to `levels`, order n from `next[n]` on; `seen[n]` counts occurrences where requested.
    void fill(std::size_t begin, std::size_t end, PerOrder next, std::vector<SuffixLevel>& levels, std::vector<Ids>& seen) const {
        PerOrder current{};
        walk(begin, end, [&](const History& history, int shared) {
            for (int n = shared + 1; n <= history.length; ++n) {
                current[n] = n == 1 ? history.words[0] : next[n]++;
                levels[n - 1].first_word[current[n]] = history.words[n - 1];
                if (n < order) levels[n - 1].extensions[current[n]] = static_cast<std::uint32_t>(next[n + 1]);
                if (n > 1) ++levels[n - 2].count[current[n - 1]];
            }
            ++levels[history.length - 1].count[current[history.length]];
            for (int n = 1; n <= history.length; ++n) {
                if (!seen[n - 1].empty()) ++seen[n - 1][current[n]];
            }
        });
    }
};

// By order: occurrences of the last n-gram within its sentence.
PerOrder last_occurrences(const Ids& ids, const Ids& positions, int order) {
    const History last(ids, positions.back(), order);
    PerOrder found{};
    std::size_t begin = 0;
    for (int n = 1; n <= last.length; ++n) {
        const auto differs = [&](std::uint32_t position) { return History(ids, position, n).shared(last) < n; };
        begin = static_cast<std::size_t>(
            std::partition_point(positions.begin() + static_cast<std::ptrdiff_t>(begin), positions.end(), differs) -
            positions.begin());
        found[n] = positions.size() - begin;
    }
    return found;
}

void make_level(SuffixLevel& level, std::size_t size, bool extended) {
    level.first_word.resize(size);
    level.count.resize(size);
    if (extended) level.extensions.resize(size + 1);
}

void prune_level(SuffixLevel& level, const Ids& seen, std::uint64_t most, bool unigrams) {
    if (seen.empty()) return;
    level.pruned.resize(seen.size());
    for (std::size_t i = unigrams ? std::size_t{NGRAM_SPECIAL} : 0; i < seen.size(); ++i) level.pruned[i] = seen[i] <= most;
}

std::string gibibytes(std::uint64_t bytes) {
    std::string text = std::to_string(std::ceil(static_cast<double>(bytes) / (1 << 30) * 100) / 100);
    return text.substr(0, text.find('.') + 3) + " GiB";
}

}  // namespace

void check_ngram_memory(std::uint64_t words, std::uint64_t ngrams, std::uint64_t memory) {
    const std::string what = std::to_string(words) + " words" + (ngrams ? " and " + std::to_string(ngrams) + " n-grams" : "");
    const std::uint64_t needed = std::max(words * NGRAM_BYTES_PER_WORD, ngrams * NGRAM_BYTES_PER_NGRAM);
    if (needed > memory) {
        throw std::length_error("a text of " + what + " needs up to " + gibibytes(needed) + " of memory, more than the limit of " +
                                gibibytes(memory) + "; raise the limit, or estimate with lmplz, which sorts on disk");
    }
    if (std::max(words, ngrams) >= std::numeric_limits<std::uint32_t>::max()) {
        throw std::length_error("a text of " + what + " has more than 32 bits can number; estimate with lmplz");
    }
}

std::vector<SuffixLevel> count_ngrams(const NgramCorpus& corpus, int order, const std::vector<std::uint64_t>& prune, int threads,
                                      std::uint64_t memory) {
    check_ngram_memory(corpus.ids.size(), 0, memory);
    const Ids positions = sort_positions(corpus, order, threads);
    const Counter counter{corpus.ids, positions, order};
    const std::vector<std::size_t> starts = counter.ranges(static_cast<std::size_t>(threads) * 16);
    const auto parts = static_cast<std::int64_t>(starts.size()) - 1;
    std::vector<PerOrder> has_context(starts.size());
    parallel_for(parts, threads, [&](std::int64_t i, int) { has_context[i] = counter.distinct(starts[i], starts[i + 1]); });
    PerOrder sizes{};
    for (PerOrder& begin : has_context) {
        for (int n = 1; n <= order; ++n) sizes[n] += std::exchange(begin[n], sizes[n]);
    }
    sizes[1] = corpus.words.size();
    std::uint64_t ngrams = 0;
    for (const std::uint64_t size : sizes) ngrams += size;
    check_ngram_memory(corpus.ids.size(), ngrams, memory);

    std::vector<SuffixLevel> levels(static_cast<std::size_t>(order));
    std::vector<Ids> seen(levels.size());
    for (int n = 1; n <= order; ++n) {
        make_level(levels[n - 1], sizes[n], n < order);
        if (prune[n - 1] > 0) seen[n - 1].resize(sizes[n]);
    }
    parallel_for(parts, threads,
                 [&](std::int64_t i, int) { counter.fill(starts[i], starts[i + 1], has_context[i], levels, seen); });
    for (std::uint32_t id = 0; id < NGRAM_SPECIAL; ++id) levels[0].first_word[id] = id;
    const PerOrder last = last_occurrences(corpus.ids, positions, order);
    for (int n = 1; n <= order; ++n) {
        if (n < order) levels[n - 1].extensions.back() = static_cast<std::uint32_t>(sizes[n + 1]);
        if (n < order) levels[n - 1].last_occurrences = static_cast<std::uint32_t>(last[n]);
        prune_level(levels[n - 1], seen[n - 1], prune[n - 1], n == 1);
    }
    return levels;
}

}  // namespace fewstep
