// Products with weights in 8 bits and values in up to 16, summed in integers: for what need only be likely, as drafts need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/network/packed_matrix.h"

namespace fewstep {

// W [outputs,inputs] as s_o q with q in -127..127 and s_o = max_i |W_oi| / 127 of each output; a row x as t r with r in -L..L and
// t = max_i |x_i| / L, L as large as leaves the sums in 32 bits. Sums are exact, so that the result of a row is the same on every machine.
class ByteMatrix {
 public:
    ByteMatrix() = default;
    explicit ByteMatrix(const PackedMatrix& matrix);

    // x [rows,inputs] to y [rows,outputs], as those of a PackedMatrix; `values` is scratch.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Then then,
                  std::vector<std::int16_t>& values) const;
    // The same for the outputs of the first `panels` only.
    void multiply_first(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, std::size_t panels, Then then,
                        std::vector<std::int16_t>& values) const;

 private:
    std::size_t outputs_ = 0, inputs_ = 0;
    std::vector<std::uint16_t> panels_;
    std::vector<float> bias_, scales_;
};

}  // namespace fewstep
