// Matrix products with int8 weights and values and exact integer sums, for results that need not be exact, such as drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/buffer.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

class Int8Rows;

// A row x = t (u - z) with integers u.
struct QuantizedRow {
    float scale;        // t
    std::int32_t zero;  // z
};

// Weights W [outputs,inputs] = s_o q with a scale per output and q in -127..127, and rows x = t (u - z). Where the processor adds
// products of four bytes in 32 bits, r = u - z is in -127..127 with t = max_i |x_i| / 127, and s_o = max_i |W_oi| / 127. Elsewhere
// on x86, where it adds them in 16 bits, u is in 0..127 and z stands for 0, so that values of one sign have as many steps; and s_o
// is larger if four neighbouring weights are so large that their products could exceed 16 bits. Integer sums are exact on all
// levels, so that a row's result depends neither on the other rows nor on the order of additions. Converting a sum to float32 takes
// one rounding with a fused multiply-add and two without.
class Int8Matrix {
  public:
    struct Scratch {
        Buffer values;
        std::vector<QuantizedRow> rows;
    };

    Int8Matrix() = default;
    explicit Int8Matrix(const PackedMatrix& matrix);
    // Use a subset of the outputs, in this order.
    Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs) : Int8Matrix(rows, outputs, {}, 0) {}
    // The same; the first `shared` outputs are copied from `prefix`, which is faster.
    Int8Matrix(const Int8Rows& rows, std::span<const std::int64_t> outputs, const Int8Matrix& prefix, std::size_t shared);

    std::size_t outputs() const { return outputs_; }
    std::size_t inputs() const { return inputs_; }

    // Multiply x [rows,inputs] into y [rows,outputs] as a PackedMatrix does; `scratch` holds the quantised rows.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                  Scratch& scratch, ThreadTeam& team = ThreadTeam::single()) const;
    // The same for the outputs of the first `panels` panels only.
    void multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                               std::size_t panels, Epilogue epilogue, Scratch& scratch,
                               ThreadTeam& team = ThreadTeam::single()) const;

  private:
    Int8Matrix(std::size_t outputs, std::size_t inputs);

    std::size_t outputs_ = 0, inputs_ = 0;
    Buffer panels_;  // groups of four weights, in the order in which the level reads them
    std::vector<float> bias_, scales_;
    std::vector<std::int32_t> sums_;  // sum_i q_oi
};

// The same quantised weights in output-major order, from which matrices of a subset of outputs are built.
class Int8Rows {
  public:
    Int8Rows() = default;
    explicit Int8Rows(const PackedMatrix& matrix);

  private:
    friend class Int8Matrix;
    std::size_t inputs_ = 0;
    std::vector<std::uint32_t> rows_;  // [outputs,groups]
    std::vector<float> bias_, scales_;
    std::vector<std::int32_t> sums_;
};

}  // namespace fewstep
