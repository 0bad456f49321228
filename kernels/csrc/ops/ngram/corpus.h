// A text as word ids, for n-gram estimation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
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

// The words of a text of which this one is a part, by id, and the ids of all but the special ones.
class NgramWords {
  public:
    // `lines` has a word on each line, in order of first appearance and without the special ones; it is kept by reference. Throws
    // std::invalid_argument for a line that is no word, or that is there twice.
    explicit NgramWords(std::string_view lines);

    std::size_t size() const { return NGRAM_SPECIAL + ids_.size(); }

    // Give the words of a part the ids of the whole text. Throws std::invalid_argument if the whole text lacks a word.
    void renumber(NgramCorpus& part) const;

  private:
    std::unordered_map<std::string_view, std::uint32_t> ids_;
};

}  // namespace fewstep
