// Products with weights of fewer bits than a float's, of either kind.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "csrc/inference/gemm/int8_matrix.h"
#include "csrc/inference/gemm/bf16_matrix.h"

namespace fewstep {

// What weights and values are multiplied in.
enum class Precision { FLOATS, HALVES, BYTES };

// Scratch for rows in fewer bits.
struct NarrowRows {
    std::vector<Half> halves;
    std::vector<ByteMatrix::Value> bytes;
};

// A PackedMatrix once more in bfloat16 or in 8 bits; or, made for floats, nothing. A row's result does not depend on company.
class NarrowMatrix {
 public:
    NarrowMatrix() = default;
    NarrowMatrix(const PackedMatrix& matrix, Precision precision)
        : halves_(precision == Precision::HALVES ? HalfMatrix(matrix) : HalfMatrix()),
          bytes_(precision == Precision::BYTES ? ByteMatrix(matrix) : ByteMatrix()) {}
    explicit NarrowMatrix(ByteMatrix bytes) : bytes_(std::move(bytes)) {}

    // x [rows,inputs] to y [rows,outputs], whose rows lie so many floats apart, with what there is, else with `whole`.
    void multiply(const PackedMatrix& whole, const float* x, std::size_t rows, float* y, std::size_t y_stride, Then then, NarrowRows& scratch,
                  Team& team = Team::alone()) const {
        if (!halves_.empty()) halves_.multiply(x, whole.inputs(), rows, y, y_stride, then, scratch.halves, team);
        else if (bytes_.outputs() > 0) bytes_.multiply(x, whole.inputs(), rows, y, y_stride, then, scratch.bytes, team);
        else whole.multiply(x, whole.inputs(), rows, y, y_stride, then, team);
    }

    const ByteMatrix& bytes() const { return bytes_; }

 private:
    HalfMatrix halves_;
    ByteMatrix bytes_;
};

// The same with rows of y side by side.
inline void product(const PackedMatrix& whole, const NarrowMatrix& narrow, const float* x, std::size_t rows, float* y, Then then, NarrowRows& scratch,
                    Team& team = Team::alone()) {
    narrow.multiply(whole, x, rows, y, whole.outputs(), then, scratch, team);
}

}  // namespace fewstep
