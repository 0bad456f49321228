// Matrix products with weights that are packed once.
#pragma once

#include <cstddef>
#include <span>

#include "csrc/base/buffer.h"
#include "csrc/base/thread_team.h"

namespace fewstep {

// The operation that is applied to x W^T + b.
enum class Epilogue {
    STORE,  // y = x W^T + b
    RELU,   // y = max(0, x W^T + b)
    GELU,   // GELU: y = z P(Z < z) of z = x W^T + b and a standard normal Z
    SWISH,  // y = z / (1 + e^-z) of z = x W^T + b
    ADD     // y += x W^T + b
};

// W [outputs,inputs] in panels of a few vectors of outputs, each panel in input-major order, so that a product reads memory
// sequentially. Every output sums over the inputs in order for any number of rows, so the result of a row does not depend on the
// other rows.
class PackedMatrix {
  public:
    PackedMatrix() = default;
    PackedMatrix(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs);  // bias: may be null

    // Repack with other weights: pointers to rows of outputs, [inputs] each.
    void pack(std::span<const float* const> weights, const float* bias, std::size_t inputs);
    // The same from W^T [inputs,outputs].
    void pack_transposed(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs);

    // Multiply x [rows,inputs] into y [rows,outputs]; rows are `x_stride` and `y_stride` floats apart.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                  Epilogue epilogue = Epilogue::STORE) const {
        multiply_panels(x, x_stride, rows, y, y_stride, 0, panels(), epilogue);
    }
    // The same; the panels are split among the threads of a team if there is enough work.
    void multiply(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, Epilogue epilogue,
                  ThreadTeam& team) const {
        multiply_first_panels(x, x_stride, rows, y, y_stride, panels(), epilogue, team);
    }
    // The same for the outputs of the first `panels` panels only.
    void multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                               std::size_t panels, Epilogue epilogue, ThreadTeam& team) const;
    // Only the outputs of the panels [first,last); the first of them is in the first column of y.
    void multiply_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, std::size_t first,
                         std::size_t last, Epilogue epilogue = Epilogue::STORE) const;

    std::size_t outputs() const { return outputs_; }
    std::size_t inputs() const { return inputs_; }
    std::size_t panels() const;
    static std::size_t panel_width();  // outputs of a panel
    const float* weights() const { return panels_.data(); }
    const float* bias() const { return bias_.data(); }  // padded to whole panels

  private:
    void reserve(std::size_t outputs, std::size_t inputs, const float* bias);

    std::size_t outputs_ = 0, inputs_ = 0;
    Buffer panels_, bias_;
};

}  // namespace fewstep
