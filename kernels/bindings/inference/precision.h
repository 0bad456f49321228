// The names of precisions in Python.
#pragma once

#include <stdexcept>
#include <string>

#include "csrc/inference/gemm/quantized_matrix.h"

namespace fewstep {

inline Precision precision_of(const std::string& name) {
    if (name == "float32") return Precision::FLOAT32;
    if (name == "bfloat16") return Precision::BFLOAT16;
    if (name == "int8") return Precision::INT8;
    throw std::invalid_argument("precision: expected float32, bfloat16 or int8, got " + name);
}

}  // namespace fewstep
