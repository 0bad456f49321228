// The counts of all parts of a text, merged.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/ops/ngram/counts.h"
#include "csrc/ops/ngram/positions.h"
#include "csrc/ops/ngram/run_file.h"

namespace fewstep {

// Runs of the parts of one text, in any order.
class NgramRuns {
  public:
    // Throws std::invalid_argument for files that NgramRunFile refuses, for parts of different texts or orders, and for other words
    // than those that were counted (see NgramWords); std::length_error for more than 2^32 - 2 words; FileError.
    NgramRuns(std::span<const std::string> paths, std::string_view words);

    int order() const { return static_cast<int>(runs_.front().header().order); }
    std::uint64_t sentences() const { return sentences_; }
    std::uint64_t tokens() const { return tokens_; }
    std::uint64_t skipped() const { return skipped_; }
    const std::vector<std::string>& words() const { return words_; }  // by id

    // The levels that count_ngrams finds in the whole text. Memory holds a block of each run for each thread, and the levels.
    // Throws std::length_error if these need more than `memory` bytes, std::runtime_error if a word never occurs.
    std::vector<SuffixLevel> levels(const std::vector<std::uint64_t>& prune, int threads, std::uint64_t memory) const;

  private:
    std::vector<NgramRunFile> runs_;
    std::vector<std::string> words_;
    std::uint64_t sentences_ = 0, tokens_ = 0, skipped_ = 0;
};

}  // namespace fewstep
