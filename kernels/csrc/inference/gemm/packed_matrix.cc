#include "csrc/inference/gemm/packed_matrix.h"

#include <algorithm>
#include <vector>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

using packed_gemm::PANEL;
using packed_gemm::VECTORS;

struct Float32Format {
    using Value = float;
    using Group = float;
    using Sums = F32Vector;
    using Dequantize = AddBias;
    static constexpr int STEP = 1;
    static constexpr bool HOLD = true;
    static constexpr std::size_t MIN_WORK = 1 << 15;

    static F32Vector weights(const float* at) { return load(at); }
    static F32Vector values(const float* at) { return broadcast(*at); }
    static F32Vector add_products(F32Vector sums, F32Vector values, F32Vector weights) {
        return multiply_add(values, weights, sums);
    }
};

std::size_t num_vectors(std::size_t columns) { return std::min<std::size_t>(VECTORS, (columns + F32_LANES - 1) / F32_LANES); }

}  // namespace

PackedMatrix::PackedMatrix(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs) {
    std::vector<const float*> rows(outputs);
    for (std::size_t output = 0; output < outputs; ++output) rows[output] = weights + output * inputs;
    pack(rows, bias, inputs);
}

void PackedMatrix::reserve(std::size_t outputs, std::size_t inputs, const float* bias) {
    outputs_ = outputs, inputs_ = inputs;
    const std::size_t width = (outputs + F32_LANES - 1) / F32_LANES * F32_LANES;
    panels_.reserve(width * inputs);
    bias_.reserve(width);
    if (bias != nullptr) std::copy_n(bias, outputs, bias_.data());
    std::fill(bias_.data() + (bias == nullptr ? 0 : outputs), bias_.data() + width, 0.0F);
}

void PackedMatrix::pack(std::span<const float* const> weights, const float* bias, std::size_t inputs) {
    reserve(weights.size(), inputs, bias);
    for (std::size_t first = 0; first < outputs_; first += F32_LANES) {
        const std::size_t start = first / PANEL * PANEL, width = num_vectors(outputs_ - start) * F32_LANES;
        const std::size_t rows = std::min<std::size_t>(F32_LANES, outputs_ - first);
        float* to = panels_.data() + start * inputs + (first - start);
        std::size_t input = 0;
        for (; input + F32_LANES <= inputs; input += F32_LANES) {
            F32Vector tile[F32_LANES];
            for (std::size_t row = 0; row < F32_LANES; ++row)
                tile[row] = row < rows ? load(weights[first + row] + input) : F32Vector{};
            transpose(tile);
            for (std::size_t lane = 0; lane < F32_LANES; ++lane) store(to + (input + lane) * width, tile[lane]);
        }
        for (; input < inputs; ++input)
            for (std::size_t row = 0; row < F32_LANES; ++row)
                to[input * width + row] = row < rows ? weights[first + row][input] : 0.0F;
    }
}

void PackedMatrix::pack_transposed(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs) {
    reserve(outputs, inputs, bias);
    for (std::size_t first = 0; first < outputs; first += PANEL) {
        const std::size_t columns = std::min(PANEL, outputs - first), width = num_vectors(columns) * F32_LANES;
        float* panel = panels_.data() + first * inputs;
        for (std::size_t input = 0; input < inputs; ++input) {
            std::copy_n(weights + input * outputs + first, columns, panel + input * width);
            std::fill_n(panel + input * width + columns, width - columns, 0.0F);
        }
    }
}

std::size_t PackedMatrix::panels() const { return (outputs_ + PANEL - 1) / PANEL; }

std::size_t PackedMatrix::panel_width() { return PANEL; }

void PackedMatrix::multiply_first_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                         std::size_t panels, Epilogue epilogue, ThreadTeam& team) const {
    const PackedGemm<Float32Format> product{x, x_stride, inputs_, panels_.data(), {bias_.data()}, y, y_stride, outputs_, epilogue};
    product.multiply(rows, panels, team);
}

void PackedMatrix::multiply_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                   std::size_t first, std::size_t last, Epilogue epilogue) const {
    const std::size_t column = first * PANEL;
    const PackedGemm<Float32Format> product{
        x, x_stride, inputs_, panels_.data() + column * inputs_, {bias_.data() + column}, y, y_stride, outputs_ - column, epilogue};
    product.multiply(rows, 0, last - first);
}

}  // namespace fewstep
