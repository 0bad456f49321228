// The n-grams of a text and their counts.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/corpus.h"

namespace fewstep {

// The n-grams of one order in suffix order: by last word, then by the word before it, and so on, so that the left extensions of an
// n-gram of order n - 1 are contiguous. Order 1 has all words, by id.
struct SuffixLevel {
    std::vector<std::uint32_t> first_word;
    std::vector<std::uint32_t> count;       // adjusted, see count_ngrams
    std::vector<std::uint32_t> extensions;  // left extensions of n-gram i: [extensions[i], extensions[i + 1]) of the next order
    std::vector<std::uint8_t> pruned;       // empty: no n-gram is pruned
    std::uint32_t last_occurrences = 0;     // c of the last n-gram, where `count` holds a

    std::size_t size() const { return first_word.size(); }
    bool keeps(std::size_t ngram) const { return pruned.empty() || !pruned[ngram]; }
};

// Upper bounds of the memory of estimation, excluding the text and its vocabulary: sorting needs bytes per word, the rest bytes per
// distinct n-gram (about 45, plus allocator overhead).
inline constexpr std::uint64_t NGRAM_BYTES_PER_WORD = 12, NGRAM_BYTES_PER_NGRAM = 64;

// Throws std::length_error if a text with this many words (<s> and </s> included) and distinct n-grams needs more than `memory`
// bytes or more than 32-bit numbers.
void check_ngram_memory(std::uint64_t words, std::uint64_t ngrams, std::uint64_t memory,
                        std::uint64_t bytes_per_word = NGRAM_BYTES_PER_WORD);

// Count the orders 1 to `order`. The adjusted count a(g) of an n-gram is its number of occurrences c(g) for the highest order and
// for n-grams that begin with <s>, else its number of distinct preceding words (Kneser and Ney 1995). An n-gram is pruned if c(g)
// <= prune[n - 1], except special words. The result does not depend on `threads`.
std::vector<SuffixLevel> count_ngrams(const NgramCorpus& corpus, int order, const std::vector<std::uint64_t>& prune, int threads,
                                      std::uint64_t memory);

}  // namespace fewstep
