// The epilogue of a matrix product: how a vector of sums is written to the output.
#pragma once

#include <cstddef>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// The last outputs, if they do not fill a vector.
[[gnu::noinline]] static void store_partial(float* y, const F32Vector& sum, bool add, std::size_t columns) {
    for (std::size_t column = 0; column < columns; ++column) {
        const float value = sum[static_cast<int>(column)];
        y[column] = add ? value + y[column] : value;
    }
}

template <Epilogue EPILOGUE>
inline void store_outputs(float* y, F32Vector sum, std::size_t columns) {
    if constexpr (EPILOGUE == Epilogue::RELU) sum = vector_max(sum, F32Vector{});
    if constexpr (EPILOGUE == Epilogue::GELU) sum = vector_gelu(sum);
    if constexpr (EPILOGUE == Epilogue::SWISH) sum = vector_swish(sum);
    if (columns < F32_LANES) return store_partial(y, sum, EPILOGUE == Epilogue::ADD, columns);
    if constexpr (EPILOGUE == Epilogue::ADD) sum += load(y);
    store(y, sum);
}

}  // namespace fewstep
