// Construction of a model file from plain arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/ops/ngram/table.h"

namespace fewstep {

// Return the bytes of a model file (see NgramHeader), as 64-bit words for alignment. Equal tables give equal bytes for any
// `threads`. Probabilities that are NaN become back-off probabilities. Throws std::length_error beyond 2^32 - 2 n-grams.
std::vector<std::uint64_t> build_ngram_file(NgramTable table, int threads);

}  // namespace fewstep
