// Products with weights of fewer bits than a float's, in the panels of a PackedMatrix, those of a group of inputs side by side.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "csrc/base/team.h"
#include "csrc/base/vectors.h"
#include "csrc/network/block_outputs.h"
#include "csrc/network/packed_matrix.h"

namespace fewstep {

// Rows x of groups of values, 32 bits each, and panels of groups of weights. `Numbers` says what these are: `Group` (weights as they lie
// in memory), `Value` (of x), `Sums`, `weights(at)` (LANES groups as integers), `add_products(sums, values, weights)`, and `Ends`, which makes
// floats of sums: `ends(sums, row, column)`, counted from where `ends.from(row, column)` begins.
template <typename Numbers>
struct GroupedProduct {
    static constexpr std::size_t SIZE = sizeof(std::int32_t) / sizeof(typename Numbers::Value);  // inputs of a group

    const typename Numbers::Value* x;  // [rows,groups,SIZE]
    std::size_t groups;
    const typename Numbers::Group* panels;
    typename Numbers::Ends ends;
    float* y;
    std::size_t y_stride, columns;
    Then then;

    // Outputs of the first `panels` for so many rows, shared out among the threads of a team where that is worth their while.
    void multiply(std::size_t rows, std::size_t panels, Team& team) const;
    void multiply(std::size_t rows, std::size_t panels) const;
    GroupedProduct from(std::size_t row, std::size_t column) const {
        return {x + row * SIZE * groups, groups, panels + column * groups, ends.from(row, column), y + row * y_stride + column, y_stride, columns - column, then};
    }
};

namespace grouped_products {

// Multiplications of a thread's part at least: about a microsecond's, less than which it takes to hand a part out.
constexpr std::size_t LEAST_WORK = 1 << 17;
constexpr int VECTORS = 3, ROWS = REGISTERS == 32 ? 8 : 4;  // as PackedMatrix

template <typename Numbers, int R, int V>
void multiply_block(const GroupedProduct<Numbers>& block) {
    typename Numbers::Sums sums[R][V] = {};
    const auto* weights = block.panels;
    for (std::size_t group = 0; group < block.groups; ++group, weights += V * LANES) {
        Ints weight[V];
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            weight[vector] = Numbers::weights(weights + vector * LANES);
            keep_in_register(weight[vector]);
        }
#pragma GCC unroll 8
        for (int row = 0; row < R; ++row) {
            std::int32_t values;
            std::memcpy(&values, block.x + block.SIZE * (static_cast<std::size_t>(row) * block.groups + group), sizeof values);
            const Ints value = values - Ints{};
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[row][vector] = Numbers::add_products(sums[row][vector], value, weight[vector]);
        }
    }
    for (int row = 0; row < R; ++row)
        for (int vector = 0; vector < V; ++vector) {
            const std::size_t column = static_cast<std::size_t>(vector) * LANES;
            write(block.y + static_cast<std::size_t>(row) * block.y_stride + column,
                  block.ends(sums[row][vector], static_cast<std::size_t>(row), column), block.then, block.columns - column);
        }
}

template <typename Numbers>
using Multiply = void (*)(const GroupedProduct<Numbers>&);

template <typename Numbers, int V, int... R>
constexpr std::array<Multiply<Numbers>, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<Numbers, R + 1, V>...};
}

template <typename Numbers>
constexpr std::array<std::array<Multiply<Numbers>, ROWS>, VECTORS> MULTIPLY = {
    by_rows<Numbers, 1>(std::make_integer_sequence<int, ROWS>()),
    by_rows<Numbers, 2>(std::make_integer_sequence<int, ROWS>()),
    by_rows<Numbers, 3>(std::make_integer_sequence<int, ROWS>()),
};

}  // namespace grouped_products

template <typename Numbers>
void GroupedProduct<Numbers>::multiply(std::size_t rows, std::size_t panels, Team& team) const {
    const std::size_t work = rows * groups * SIZE * panels * PackedMatrix::panel();
    const auto parts = std::clamp<std::size_t>(work / grouped_products::LEAST_WORK, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) {
        const std::size_t first = panels * part / parts, last = panels * (part + 1) / parts;
        from(0, first * PackedMatrix::panel()).multiply(rows, last - first);
    });
}

template <typename Numbers>
void GroupedProduct<Numbers>::multiply(std::size_t rows, std::size_t panels) const {
    using namespace grouped_products;
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t first = 0; first < std::min(panels * PackedMatrix::panel(), columns); first += PackedMatrix::panel()) {
        const std::size_t vectors = std::min<std::size_t>(VECTORS, (columns - first + LANES - 1) / LANES) - 1;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            MULTIPLY<Numbers>[vectors][count - 1](from(row, first));
        }
    }
}

}  // namespace fewstep
