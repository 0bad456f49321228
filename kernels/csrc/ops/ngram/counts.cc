#include "csrc/ops/ngram/counts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "csrc/ops/ngram/levels.h"
#include "csrc/ops/ngram/positions.h"

namespace fewstep {

namespace {

std::string gibibytes(std::uint64_t bytes) {
    std::string text = std::to_string(std::ceil(static_cast<double>(bytes) / (1 << 30) * 100) / 100);
    return text.substr(0, text.find('.') + 3) + " GiB";
}

}  // namespace

void check_ngram_memory(std::uint64_t words, std::uint64_t ngrams, std::uint64_t memory, std::uint64_t bytes_per_word) {
    const std::string what = std::to_string(words) + " words" + (ngrams ? " and " + std::to_string(ngrams) + " n-grams" : "");
    const std::uint64_t needed = std::max(words * bytes_per_word, ngrams * NGRAM_BYTES_PER_NGRAM);
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
    const NgramPositions positions(corpus.ids, corpus.sentences, corpus.words.size(), order, threads);
    const LevelBuilder builder(positions, corpus.words.size(), order, threads);
    check_ngram_memory(corpus.ids.size(), builder.ngrams(), memory);
    return builder.build(prune);
}

}  // namespace fewstep
