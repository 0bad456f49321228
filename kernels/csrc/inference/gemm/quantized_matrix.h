// Matrix products with weights in the precision of a network.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "csrc/inference/gemm/bf16_matrix.h"
#include "csrc/inference/gemm/int8_matrix.h"

namespace fewstep {

// The precision in which weights and values are multiplied.
enum class Precision { FLOAT32, BFLOAT16, INT8 };

// Scratch for quantised rows.
struct QuantizedRows {
    std::vector<Bf16> bf16;
    Int8Matrix::Scratch int8;
};

// A copy of a PackedMatrix in bfloat16 or int8, or nothing in float32. The result of a row does not depend on the other rows.
class QuantizedMatrix {
  public:
    QuantizedMatrix() = default;
    QuantizedMatrix(const PackedMatrix& matrix, Precision precision)
        : bf16_(precision == Precision::BFLOAT16 ? Bf16Matrix(matrix) : Bf16Matrix()),
          int8_(precision == Precision::INT8 ? Int8Matrix(matrix) : Int8Matrix()) {}
    explicit QuantizedMatrix(Int8Matrix int8) : int8_(std::move(int8)) {}

    // Multiply x [rows,inputs] into y [rows,outputs], whose rows are `y_stride` floats apart, with this matrix, or with `matrix` if
    // this one is float32.
    void multiply(const PackedMatrix& matrix, const float* x, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                  QuantizedRows& scratch, ThreadTeam& team = ThreadTeam::single()) const {
        if (!bf16_.empty())
            bf16_.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, scratch.bf16, team);
        else if (int8_.outputs() > 0)
            int8_.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, scratch.int8, team);
        else
            matrix.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, team);
    }

    const Int8Matrix& int8() const { return int8_; }

  private:
    Bf16Matrix bf16_;
    Int8Matrix int8_;
};

// The same with contiguous rows of y.
inline void gemm(const PackedMatrix& matrix, const QuantizedMatrix& quantized, const float* x, std::size_t rows, float* y,
                 Epilogue epilogue, QuantizedRows& scratch, ThreadTeam& team = ThreadTeam::single()) {
    quantized.multiply(matrix, x, rows, y, matrix.outputs(), epilogue, scratch, team);
}

}  // namespace fewstep
