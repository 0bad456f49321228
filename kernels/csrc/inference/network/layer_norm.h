// Layer normalisation of rows.
#pragma once

#include <cstddef>
#include <vector>

namespace fewstep {

// What a row is normalised by: its mean, and 1 / sqrt(variance + 1e-5).
struct Moments {
    float mean, inverse_deviation;
};

Moments moments(const float* x, std::size_t width);

// (x - mean) / sqrt(variance + 1e-5) scale + shift
class LayerNorm {
 public:
    LayerNorm() = default;
    LayerNorm(const float* scale, const float* shift, std::size_t width) : scale_(scale, scale + width), shift_(shift, shift + width) {}
    void apply(const float* x, std::size_t rows, float* y) const;  // [rows,D]; x may be y

 private:
    std::vector<float> scale_, shift_;
};

}  // namespace fewstep
