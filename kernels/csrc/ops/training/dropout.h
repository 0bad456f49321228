// Dropout (Srivastava et al. 2014) whose masks follow from a seed, so that the backward pass computes them again and none is
// stored.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fewstep {

// The dropout of one call: units are dropped with this probability, below 1; others are multiplied by 1 / (1 - probability).
struct Dropout {
    float probability = 0.0F;
    std::uint64_t seed = 0;
};

// y_i = x_i m_i for `count` values, float32 or bfloat16 as bits; x and y may be the same. m is the mask of rows of 2^16 values.
template <typename Value>
void dropout(const Dropout& options, const Value* x, Value* y, std::size_t count, int threads);

}  // namespace fewstep
