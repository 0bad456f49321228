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
// with r in -127..127 and t = max_i |x_i| / 127. Sums are exact, so the result of a row is the same on every machine.
class Int8Matrix {
  public:
#if defined(__AVX512VNNI__)
    using Value = std::uint8_t;   // r + 128
    using Group = std::uint32_t;  // weights of four inputs
#else
    using Value = std::int16_t;
    using Group = std::uint16_t;
#endif

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
                  std::vector<Value>& values, ThreadTeam& team = ThreadTeam::single()) const;
    // The same for the outputs of the first `panels` panels only.
    void multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                               std::size_t panels, Epilogue epilogue, std::vector<Value>& values,
                               ThreadTeam& team = ThreadTeam::single()) const;

  private:
    std::size_t outputs_ = 0, inputs_ = 0;
    std::vector<Group> panels_;
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
    std::vector<Int8Matrix::Group> rows_;  // [outputs,groups]
    std::vector<float> bias_, scales_;
    std::vector<std::int32_t> offsets_;
};

}  // namespace fewstep
