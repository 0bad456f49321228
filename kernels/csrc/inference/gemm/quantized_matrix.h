// Products with weights of fewer bits than a float's, of either kind.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "csrc/inference/gemm/int8_matrix.h"
#include "csrc/inference/gemm/bf16_matrix.h"

namespace fewstep {

// What weights and values are multiplied in.
enum class Precision { FLOAT32, BFLOAT16, INT8 };

// Scratch for rows in fewer bits.
struct QuantizedRows {
    std::vector<Bf16> bf16;
    std::vector<Int8Matrix::Value> int8;
};

// A PackedMatrix once more in bfloat16 or in 8 bits; or, made for floats, nothing. A row's result does not depend on company.
class QuantizedMatrix {
 public:
    QuantizedMatrix() = default;
    QuantizedMatrix(const PackedMatrix& matrix, Precision precision)
        : bf16_(precision == Precision::BFLOAT16 ? Bf16Matrix(matrix) : Bf16Matrix()),
          int8_(precision == Precision::INT8 ? Int8Matrix(matrix) : Int8Matrix()) {}
    explicit QuantizedMatrix(Int8Matrix int8) : int8_(std::move(int8)) {}

    // x [rows,inputs] to y [rows,outputs], whose rows lie so many floats apart, with what there is, else with `whole`.
    void multiply(const PackedMatrix& matrix, const float* x, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue, QuantizedRows& scratch,
                  ThreadTeam& team = ThreadTeam::single()) const {
        if (!bf16_.empty()) bf16_.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, scratch.bf16, team);
        else if (int8_.outputs() > 0) int8_.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, scratch.int8, team);
        else matrix.multiply(x, matrix.inputs(), rows, y, y_stride, epilogue, team);
    }

    const Int8Matrix& int8() const { return int8_; }

 private:
    Bf16Matrix bf16_;
    Int8Matrix int8_;
};

// The same with rows of y side by side.
inline void gemm(const PackedMatrix& matrix, const QuantizedMatrix& quantized, const float* x, std::size_t rows, float* y, Epilogue epilogue, QuantizedRows& scratch,
                    ThreadTeam& team = ThreadTeam::single()) {
    quantized.multiply(matrix, x, rows, y, matrix.outputs(), epilogue, scratch, team);
}

}  // namespace fewstep
