// The n-grams of a text and their counts.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/corpus.h"

namespace fewstep {

// The n-grams of one order in suffix order: by last word, then by the word before it, and so on. So the n-grams that extend
// one of order n - 1 to the left stand together. Those of order 1 are all words, by id.
struct SuffixLevel {
    std::vector<std::uint32_t> first_word;
    std::vector<std::uint32_t> count;       // adjusted, see count_ngrams
    std::vector<std::uint32_t> extensions;  // n-gram i is extended by [extensions[i], extensions[i + 1]) of the next order
    std::vector<std::uint8_t> pruned;       // empty: none is
    std::uint32_t last_occurrences = 0;     // c of the last one, where a stands in `count`

    std::size_t size() const { return first_word.size(); }
    bool keeps(std::size_t ngram) const { return pruned.empty() || !pruned[ngram]; }
};

// Bytes that estimation takes at most, beside the text and its vocabulary: sorting needs so much of each word, the rest of each
// distinct n-gram (about 45, and what allocators lose).
inline constexpr std::uint64_t NGRAM_BYTES_PER_WORD = 12, NGRAM_BYTES_PER_NGRAM = 64;

// Throws std::length_error when a text of so many words (</s> and <s> among them) and distinct n-grams needs more than `memory`
// bytes, or more than 32 bits can number.
void check_ngram_memory(std::uint64_t words, std::uint64_t ngrams, std::uint64_t memory);

// Counts of the orders 1 to `order`. The adjusted count of an n-gram a(g) is its number of occurrences c(g) where n is the
// highest order or g begins with <s>, else the number of distinct words that precede it (Kneser and Ney 1995). An n-gram is
// pruned when c(g) <= prune[n - 1], special words apart. Neither depends on `threads`.
std::vector<SuffixLevel> count_ngrams(const NgramCorpus& corpus, int order, const std::vector<std::uint64_t>& prune, int threads,
                                      std::uint64_t memory);

}  // namespace fewstep
