#include "csrc/inference/gemm/packed_matrix.h"

#include <algorithm>
#include <vector>

#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/packed_gemm.h"

namespace fewstep {

namespace {

using panel_products::PANEL;
using panel_products::VECTORS;

struct FloatNumbers {
    using Value = float;
    using Group = float;
    using Sums = Floats;
    using Ends = BiasEnds;
    static constexpr std::size_t LEAST_WORK = 1 << 15;

    static Floats weights(const float* at) { return load(at); }
    static Floats values(const float* at) { return all(*at); }
    static Floats add_products(Floats sums, Floats values, Floats weights) { return fused(values, weights, sums); }
};

std::size_t vectors_for(std::size_t columns) { return std::min<std::size_t>(VECTORS, (columns + LANES - 1) / LANES); }

}  // namespace

PackedMatrix::PackedMatrix(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs) {
    std::vector<const float*> rows(outputs);
    for (std::size_t output = 0; output < outputs; ++output) rows[output] = weights + output * inputs;
    pack(rows, bias, inputs);
}

void PackedMatrix::reserve(std::size_t outputs, std::size_t inputs, const float* bias) {
    outputs_ = outputs, inputs_ = inputs;
    const std::size_t width = (outputs + LANES - 1) / LANES * LANES;
    panels_.reserve(width * inputs);
    bias_.reserve(width);
    if (bias != nullptr) std::copy_n(bias, outputs, bias_.data());
    std::fill(bias_.data() + (bias == nullptr ? 0 : outputs), bias_.data() + width, 0.0F);
}

void PackedMatrix::pack(std::span<const float* const> weights, const float* bias, std::size_t inputs) {
    reserve(weights.size(), inputs, bias);
    for (std::size_t first = 0; first < outputs_; first += LANES) {
        const std::size_t panel = first / PANEL * PANEL, panel_width = vectors_for(outputs_ - panel) * LANES;
        const std::size_t rows = std::min<std::size_t>(LANES, outputs_ - first);
        float* to = panels_.data() + panel * inputs + (first - panel);
        std::size_t input = 0;
        for (; input + LANES <= inputs; input += LANES) {
            Floats tile[LANES];
            for (std::size_t row = 0; row < LANES; ++row) tile[row] = row < rows ? load(weights[first + row] + input) : Floats{};
            turn(tile);
            for (std::size_t lane = 0; lane < LANES; ++lane) store(to + (input + lane) * panel_width, tile[lane]);
        }
        for (; input < inputs; ++input)
            for (std::size_t row = 0; row < LANES; ++row) to[input * panel_width + row] = row < rows ? weights[first + row][input] : 0.0F;
    }
}

void PackedMatrix::pack_turned(const float* weights, const float* bias, std::size_t outputs, std::size_t inputs) {
    reserve(outputs, inputs, bias);
    for (std::size_t first = 0; first < outputs; first += PANEL) {
        const std::size_t columns = std::min(PANEL, outputs - first), panel_width = vectors_for(columns) * LANES;
        float* panel = panels_.data() + first * inputs;
        for (std::size_t input = 0; input < inputs; ++input) {
            std::copy_n(weights + input * outputs + first, columns, panel + input * panel_width);
            std::fill_n(panel + input * panel_width + columns, panel_width - columns, 0.0F);
        }
    }
}

std::size_t PackedMatrix::panels() const { return (outputs_ + PANEL - 1) / PANEL; }

std::size_t PackedMatrix::panel() { return PANEL; }

void PackedMatrix::multiply_first(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride, std::size_t panels,
                                  Then then, Team& team) const {
    const PanelProduct<FloatNumbers> product{x, x_stride, inputs_, panels_.data(), {bias_.data()}, y, y_stride, outputs_, then};
    product.multiply(rows, panels, team);
}

void PackedMatrix::multiply_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                   std::size_t first, std::size_t last, Then then) const {
    const std::size_t column = first * PANEL;
    const PanelProduct<FloatNumbers> product{
        x, x_stride, inputs_, panels_.data() + column * inputs_, {bias_.data() + column}, y, y_stride, outputs_ - column, then};
    product.multiply(rows, 0, last - first);
}

}  // namespace fewstep
