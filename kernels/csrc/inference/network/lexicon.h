// The lexicon from which shortlists of target tokens are made (Jean et al. 2015, section 3.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/gemm/int8_matrix.h"

namespace fewstep {

// The size of a shortlist: `tokens` common tokens (0: no shortlist, all tokens are candidates) and `links` translations of each
// source token.
struct ShortlistOptions {
    std::size_t tokens = 0, links = 0;
};

struct Lexicon {
    std::vector<std::int64_t> common_tokens;  // most frequent first, eos among them
    std::vector<std::int64_t>
        linked_tokens;       // [source vocabulary,links] translations of each source token, best first, padded with -1
    std::size_t links = 0;   // maximum per token; 0: no translations are known
    Int8Rows int8;           // rows of the target vocabulary in int8,
    Int8Matrix common_int8;  // and those of the common tokens as a matrix; empty if shortlists are ranked in float32

    // Rank shortlists in int8 from now on.
    void quantize(const PackedMatrix& vocabulary) {
        int8 = Int8Rows(vocabulary);
        common_int8 = Int8Matrix(int8, common_tokens);
    }
    bool quantized() const { return common_int8.outputs() > 0; }
    // Return the distinct tokens of the shortlist of a source, the common tokens first.
    std::vector<std::int64_t> shortlist_tokens(std::span<const std::int64_t> source, const ShortlistOptions& rules,
                                               std::size_t target_vocabulary) const;
};

}  // namespace fewstep
