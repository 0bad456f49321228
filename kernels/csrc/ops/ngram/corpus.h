// A text as word ids, for n-gram estimation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/inference/ngram/text.h"

namespace fewstep {

struct NgramCorpus {
    std::vector<std::string> words;  // by id: the special ones, then by first appearance
    std::vector<std::uint32_t> ids;  // <s> words </s>, sentence after sentence
    std::uint64_t sentences = 0;
    std::uint64_t skipped = 0;  // skipped special words in the text
};

// Read one sentence per line; an empty line is a sentence without words. A special word in the text is skipped, or an error
// (std::invalid_argument). The result does not depend on `threads`.
NgramCorpus read_ngram_corpus(std::string_view text, bool skip_special, int threads);

}  // namespace fewstep
