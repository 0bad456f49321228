// The model file from plain arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/ops/ngram/table.h"

namespace fewstep {

// Bytes of a model file (see NgramHeader), in words so that they are aligned. Equal tables give equal bytes for any `threads`.
// Probabilities that are NaN become what backing off gives. Throws std::length_error beyond 2^32 - 2 n-grams.
std::vector<std::uint64_t> build_ngram_file(NgramTable table, int threads);

}  // namespace fewstep
