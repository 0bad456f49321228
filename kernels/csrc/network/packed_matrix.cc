#include "csrc/network/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "csrc/base/vectors.h"
#include "csrc/network/block_outputs.h"

namespace fewstep {

namespace {

// Sums of a block stay in registers: ROWS x VECTORS of them, the weights of one input, and one to spare.
constexpr int VECTORS = 3;
constexpr int ROWS = REGISTERS == 32 ? 8 : 4;
constexpr std::size_t PANEL = VECTORS * LANES;

// Multiplications of a thread's part at least: about a microsecond's, less than which it takes to hand a part out.
constexpr std::size_t LEAST_WORK = 1 << 15;

struct Block {
    const float* x;
    std::size_t x_stride, inputs;
    const float *panel, *bias;
    float* y;
    std::size_t y_stride, columns;
    Then then;
};

// FETCH: the next panel is fetched into the cache meanwhile.
template <int R, int V, bool FETCH>
void multiply_block(const Block& block) {
    Floats sums[R][V] = {};
    const float* weights = block.panel;
    const float* x[R];
    for (int row = 0; row < R; ++row) x[row] = block.x + static_cast<std::size_t>(row) * block.x_stride;
    for (std::size_t input = 0; input < block.inputs; ++input, weights += V * LANES) {
        Floats weight[V];
        if constexpr (FETCH) {
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) __builtin_prefetch(weights + V * LANES * block.inputs + vector * LANES, 0, 2);
        }
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            weight[vector] = load(weights + vector * LANES);
            if (R > 1) keep_in_register(weight[vector]);
        }
#pragma GCC unroll 8
        for (int row = 0; row < R; ++row) {
            const Floats value = all(x[row][input]);
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[row][vector] = fused(value, weight[vector], sums[row][vector]);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < R; ++row)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            const std::size_t column = static_cast<std::size_t>(vector) * LANES;
            write(block.y + static_cast<std::size_t>(row) * block.y_stride + column, sums[row][vector] + load(block.bias + column),
                  block.then, block.columns - column);
        }
}

using Multiply = void (*)(const Block&);

template <int V, bool FETCH, int... R>
constexpr std::array<Multiply, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<R + 1, V, FETCH>...};
}

template <bool FETCH, int... V>
constexpr std::array<std::array<Multiply, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<V + 1, FETCH>(std::make_integer_sequence<int, ROWS>())...};
}

constexpr auto MULTIPLY = by_vectors<false>(std::make_integer_sequence<int, VECTORS>());
constexpr auto MULTIPLY_AND_FETCH = by_vectors<true>(std::make_integer_sequence<int, VECTORS>());

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
    const std::size_t work = rows * inputs_ * panels * PANEL;
    const std::size_t parts = std::clamp<std::size_t>(work / LEAST_WORK, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) {
        const std::size_t first = panels * part / parts, last = panels * (part + 1) / parts;
        multiply_panels(x, x_stride, rows, y + first * PANEL, y_stride, first, last, then);
    });
}

void PackedMatrix::multiply_panels(const float* x, std::size_t x_stride, std::size_t rows, float* y, std::size_t y_stride,
                                   std::size_t first, std::size_t last, Then then) const {
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t panel = first; panel < last; ++panel) {
        const std::size_t column = panel * PANEL, columns = outputs_ - column;
        const std::size_t vectors = vectors_for(columns) - 1;
        // Blocks of nearly equal size.
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            // A single block reads panel after panel as fast as they come; of several the last leaves time to fetch.
            const auto& kernels = blocks > 1 && block + 1 == blocks ? MULTIPLY_AND_FETCH : MULTIPLY;
            kernels[vectors][count - 1]({x + row * x_stride, x_stride, inputs_, panels_.data() + column * inputs_, bias_.data() + column,
                                         y + row * y_stride + (panel - first) * PANEL, y_stride, columns, then});
        }
    }
}

}  // namespace fewstep
