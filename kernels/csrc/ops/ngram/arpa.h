// The ARPA text format of n-gram models.
#pragma once

#include <string>
#include <string_view>

#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/table.h"

namespace fewstep {

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
