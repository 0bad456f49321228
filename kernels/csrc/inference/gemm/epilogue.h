// What becomes of the sums of a block of products, a vector of outputs at a time.
#pragma once

#include <cstddef>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// The last outputs, which fill no vector.
[[gnu::noinline]] static void write_some(float* y, const Floats& sum, Then then, std::size_t columns) {
    for (std::size_t column = 0; column < columns; ++column) {
        const float value = sum[static_cast<int>(column)];
        y[column] = then == Then::ADD ? value + y[column] : value;
    }
}

static inline void write(float* y, Floats sum, Then then, std::size_t columns) {
    if (then == Then::RELU) sum = larger(sum, Floats{});
    if (then == Then::GELU) sum = gelu_of(sum);
    if (columns < LANES) return write_some(y, sum, then, columns);
    if (then == Then::ADD) sum += load(y);
    store(y, sum);
}

}  // namespace fewstep
