// Matrix products with int8 weights and values and exact integer sums, for results that need not be exact, such as drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

class Int8Rows;

// Symmetric quantisation: W [outputs,inputs] = s_o q with q in -127..127 and s_o = max_i |W_oi| / 127 per output; a row x = t r
// with r in -127..127 and t = max_i |x_i| / 127. The integer sums are exact, so that a row's result depends neither on the other
// rows nor on the order of additions. Converting a sum to float32 takes one rounding with a fused multiply-add and two without, so
// that results are the same on the levels that have one, and differ from those of x86-64-v2 in the last bits.
class Int8Matrix {
  public:
    using Scratch = std::vector<std::byte>;

    Int8Matrix() = default;
    explicit Int8Matrix(const PackedMatrix& matrix);
    // Use a subset of the outputs, in this order.
    Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs) : Int8Matrix(rows, outputs, {}, 0) {}
    // The same; the first `shared` outputs are copied from `prefix`, which is faster.
    Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs, const Int8Matrix& prefix, std::size_t shared);

    std::size_t outputs() const { return outputs_; }
    std::size_t inputs() const { return inputs_; }

    // Multiply x [rows,inputs] into y [rows,outputs] as a PackedMatrix does; `values` is scratch.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                  Scratch& values, ThreadTeam& team = ThreadTeam::single()) const;
    // The same for the outputs of the first `panels` panels only.
    void multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                               std::size_t panels, Epilogue epilogue, Scratch& values,
                               ThreadTeam& team = ThreadTeam::single()) const;

  private:
    std::size_t outputs_ = 0, inputs_ = 0;
    std::vector<std::byte> panels_;  // groups of 32 bits of values, in the format of the level
    std::vector<float> bias_, scales_;
    std::vector<std::int32_t> offsets_;  // correction of the sums for what was added to r: 128 sum_i q_oi, or 0
};

// The same quantised weights in output-major order, from which matrices of a subset of outputs are built.
class Int8Rows {
  public:
    Int8Rows() = default;
    explicit Int8Rows(const PackedMatrix& matrix);

  private:
    friend class Int8Matrix;
    std::size_t inputs_ = 0;
    std::vector<std::byte> rows_;  // [outputs,groups]
    std::vector<float> bias_, scales_;
    std::vector<std::int32_t> offsets_;
};

}  // namespace fewstep
