// Arguments of dropout.
#pragma once

#include <cstdint>

#include "csrc/ops/training/dropout.h"

namespace fewstep {

// Raises ValueError unless the probability is from 0 to below 1 as a float32.
Dropout dropout_of(double probability, std::uint64_t seed);

}  // namespace fewstep
