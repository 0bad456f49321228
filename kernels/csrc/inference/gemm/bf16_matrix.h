// Matrix products with bfloat16 weights and float32 sums, twice as fast as float32 on machines with AVX512-BF16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

using Bf16 = std::uint16_t;  // the upper half of the bits of a float32, rounded to nearest even

// W [outputs,inputs] in the panels of a PackedMatrix, with pairs of inputs side by side. The result of a row does not depend on the
// other rows.
class Bf16Matrix {
  public:
    Bf16Matrix() = default;
    explicit Bf16Matrix(const PackedMatrix& matrix);

    bool empty() const { return panels_.empty(); }
    std::size_t outputs() const { return outputs_; }

    // Multiply x [rows,inputs] into y [rows,outputs]; `bf16_values` is scratch for x in bfloat16.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                  std::vector<Bf16>& bf16_values, ThreadTeam& team = ThreadTeam::single()) const;

  private:
    std::size_t outputs_ = 0, inputs_ = 0;
    std::vector<std::uint32_t> panels_;
    std::vector<float> bias_;
};

}  // namespace fewstep
