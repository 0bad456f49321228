// The epilogue of a matrix product: how a vector of sums is written to the output.
#pragma once

#include <cstddef>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// The last outputs, if they do not fill a vector.
[[gnu::noinline]] static void store_partial(float* y, const F32Vector& sum, Epilogue epilogue, std::size_t columns) {
    for (std::size_t column = 0; column < columns; ++column) {
        const float value = sum[static_cast<int>(column)];
        y[column] = epilogue == Epilogue::ADD ? value + y[column] : value;
    }
}

static inline void store_outputs(float* y, F32Vector sum, Epilogue epilogue, std::size_t columns) {
    if (epilogue == Epilogue::RELU) sum = vector_max(sum, F32Vector{});
    if (epilogue == Epilogue::GELU) sum = vector_gelu(sum);
    if (epilogue == Epilogue::SWISH) sum = vector_swish(sum);
    if (columns < F32_LANES) return store_partial(y, sum, epilogue, columns);
    if (epilogue == Epilogue::ADD) sum += load(y);
    store(y, sum);
}

}  // namespace fewstep
