// An n-gram model as plain arrays, the result of estimation and of reading ARPA files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/inference/ngram/model.h"

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

// Construction of a model file from plain arrays.

// Return the bytes of a model file (see NgramHeader), as 64-bit words for alignment. Equal tables give equal bytes for any
// `threads`. Probabilities that are NaN become back-off probabilities. Throws std::length_error beyond 2^32 - 2 n-grams.
std::vector<std::uint64_t> build_ngram_file(NgramTable table, int threads);

// The ARPA text format of n-gram models.

// The log-probability of <unk> in files without it, to base 10.
inline constexpr float NGRAM_NO_UNKNOWN = -100;

// Read an ARPA file. Text before \data\ is ignored, white space separates fields, a missing back-off and those of the highest order
// are 0, <UNK> is <unk>, and a missing <unk> gets NGRAM_NO_UNKNOWN. A missing context of an n-gram is added with its back-off
// probability. Numbers are rounded to float.
// Throws std::invalid_argument, with `name` and the line, for an invalid file: counts that differ from the header, words without a
// unigram, duplicate n-grams, missing <s> or </s>, positive log-probabilities, invalid numbers, or a missing \end\.
NgramTable read_arpa(std::string_view text, const std::string& name);

// Write a model; reading it again gives the same bytes. Throws FileError.
void write_arpa(const NgramModel& model, const std::string& path);

}  // namespace fewstep
