// Layer normalisation of rows.
#pragma once

#include <cstddef>
#include <vector>

namespace fewstep {

// What a row is normalised by: its mean, and 1 / sqrt(variance + 1e-5).
struct Moments {
    float mean, rate;
};

Moments moments_of(const float* x, std::size_t width);

// (x - mean) / sqrt(variance + 1e-5) scale + shift
class Norm {
 public:
    Norm() = default;
    Norm(const float* scale, const float* shift, std::size_t width) : scale_(scale, scale + width), shift_(shift, shift + width) {}
    void apply(const float* x, std::size_t rows, float* y) const;  // [rows,D]; x may be y

 private:
    std::vector<float> scale_, shift_;
};

}  // namespace fewstep
