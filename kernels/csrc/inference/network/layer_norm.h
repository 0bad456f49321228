// Layer normalisation (Ba et al. 2016).
#pragma once

#include <cstddef>
#include <vector>

namespace fewstep {

// The mean of a row and 1 / sqrt(variance + 1e-5).
struct Moments {
    float mean, inverse_deviation;
};

Moments moments(const float* x, std::size_t width);

// y = (x - mean) / sqrt(variance + 1e-5) * scale + shift
class LayerNorm {
  public:
    LayerNorm() = default;
    LayerNorm(const float* scale, const float* shift, std::size_t width)
        : scale_(scale, scale + width), shift_(shift, shift + width) {}
    void apply(const float* x, std::size_t rows, float* y) const;  // [rows,D]; x may be y

  private:
    std::vector<float> scale_, shift_;
};

}  // namespace fewstep
