// The activations of feed-forward blocks, which Python passes as numbers.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>

#include "bindings/arrays.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// The activation with this index in `ACTIVATIONS` of fewstep/networks/arrays.py.
inline Epilogue activation_of(std::size_t index) {
    constexpr Epilogue ACTIVATIONS[] = {Epilogue::RELU, Epilogue::GELU, Epilogue::SWISH};
    require(index < std::size(ACTIVATIONS), "activation: expected a number below " + std::to_string(std::size(ACTIVATIONS)));
    return ACTIVATIONS[index];
}

}  // namespace fewstep
