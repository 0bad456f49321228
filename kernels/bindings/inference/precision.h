// The names of precisions.
#pragma once

#include <stdexcept>
#include <string>

#include "csrc/inference/gemm/quantized_matrix.h"

namespace fewstep {

inline Precision precision_of(const std::string& name) {
    if (name == "fp32") return Precision::FLOATS;
    if (name == "bf16") return Precision::HALVES;
    if (name == "int8") return Precision::BYTES;
    throw std::invalid_argument("precision: expected fp32, bf16 or int8, got " + name);
}

}  // namespace fewstep
