// Which words of a target are likely, whatever the source, and which where some word stands in the source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/gemm/int8_matrix.h"

namespace fewstep {

// How many words are listed for a source: `words` common ones (0: there is no list, all words may be written), and `links` that each
// of its words is linked to.
struct ShortlistOptions {
    std::size_t tokens = 0, links = 0;
};

struct Lexicon {
    std::vector<std::int64_t> common_tokens;  // in the order in which they are listed, eos among them
    std::vector<std::int64_t> linked_tokens;  // [source words,links] by word of a source, what it is translated as, best first; -1: no more
    std::size_t links = 0;                   // of a word at most; 0: none are known
    Int8Rows int8;                          // the words' rows of a vocabulary in 8 bits, and those of the common words
    Int8Matrix common_int8;                 // as a matrix; empty where lists rank in floats

    // From now on lists rank in 8 bits.
    void quantize(const PackedMatrix& vocabulary) {
        int8 = Int8Rows(vocabulary);
        common_int8 = Int8Matrix(int8, common_tokens);
    }
    bool quantized() const { return common_int8.outputs() > 0; }
    // The words listed for a source, each once: the common ones come first.
    std::vector<std::int64_t> shortlist_tokens(std::span<const std::int64_t> source, const ShortlistOptions& rules, std::size_t target_vocabulary) const;
};

}  // namespace fewstep
