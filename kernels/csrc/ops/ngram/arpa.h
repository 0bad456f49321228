// Models as text, in the ARPA format.
#pragma once

#include <string>
#include <string_view>

#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/table.h"

namespace fewstep {

// The log-probability of <unk> where a file has none, to base 10.
inline constexpr float NGRAM_NO_UNKNOWN = -100;

// Reads an ARPA file: text before \data\ is ignored; white space parts fields; a missing back-off is 0, and so is that of the
// highest order; <UNK> is <unk>, and where there is none it gets NGRAM_NO_UNKNOWN. An n-gram whose context is missing gets that
// context, with the probability that backing off gives it. Numbers of float range are taken to the nearest float.
//
// Throws std::invalid_argument, with `name` and the line, for what is no ARPA file: counts unlike the header's, a word that is
// no unigram, an n-gram that stands there twice, no <s> or </s>, a log-probability above 0, a number that is none, no \end\.
NgramTable read_arpa(std::string_view text, const std::string& name);

// Writes a model; read again it gives the same bytes. Throws FileError.
void write_arpa(const NgramModel& model, const std::string& path);

}  // namespace fewstep
