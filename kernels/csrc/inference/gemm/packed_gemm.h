// Products with weights that are laid out in panels, whatever kind of numbers they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "csrc/base/thread_team.h"
#include "csrc/base/simd_f32.h"
#include "csrc/inference/gemm/epilogue.h"

namespace fewstep {

namespace panel_products {

// Sums of a block stay in registers: ROWS x VECTORS of them, the weights of one group, and one to spare.
constexpr int VECTORS = 3, ROWS = REGISTERS == 32 ? 8 : 4;
constexpr std::size_t PANEL = VECTORS * LANES;

// Which weights a block fetches into the cache while it multiplies: those some groups ahead, or the next panel.
enum class Fetch { NONE, AHEAD, PANEL };
constexpr std::size_t AHEAD = 16;

}  // namespace panel_products

// Rows x of groups of values, 32 bits each, and weights in panels of PANEL outputs, group by group. `Numbers` says what these are: `Group`
// (weights of an output as they lie in memory), `Value` (of x), `Sums`, `weights(at)` (LANES groups), `values(at)` (a group for all lanes),
// `add_products(sums, values, weights)`, LEAST_WORK (multiplications of a thread's part at least: about a microsecond's, less than which
// it takes to hand a part out), and `Ends`, which makes floats of sums: `ends(sums, row, column)`.
template <typename Numbers>
struct PanelProduct {
    static constexpr std::size_t SIZE = sizeof(std::int32_t) / sizeof(typename Numbers::Value);  // inputs of a group

    const typename Numbers::Value* x;  // [rows,groups,SIZE]
    std::size_t x_stride, groups;
    const typename Numbers::Group* panels;
    typename Numbers::Ends ends;
    float* y;
    std::size_t y_stride, columns;
    Then then;

    // Outputs of the first `panels` for so many rows, shared out among the threads of a team where that is worth their while.
    void multiply(std::size_t rows, std::size_t panels, Team& team) const;
    // Those of the panels [first,last).
    void multiply(std::size_t rows, std::size_t first, std::size_t last) const;
};

// 32 bits, in all lanes.
template <typename Value>
static inline Ints group_for_all(const Value* at) {
    std::int32_t group;
    std::memcpy(&group, at, sizeof group);
    return group - Ints{};
}

// What becomes of sums to which only a bias is added.
struct BiasEnds {
    const float* bias;

    Floats operator()(Floats sums, std::size_t, std::size_t column) const { return sums + load(bias + column); }
};

namespace panel_products {

// Calls body(row, vector) for all sums of a block, unrolled: they stay in registers.
template <int R, int V, typename Body>
inline void each(const Body& body) {
#pragma GCC unroll 8
    for (int row = 0; row < R; ++row)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) body(row, vector);
}

// R rows from `row` on by the V vectors of the panel from `column` on.
template <typename Numbers, int R, int V, Fetch FETCH>
void multiply_block(const PanelProduct<Numbers>& product, std::size_t row, std::size_t column) {
    typename Numbers::Sums sums[R][V] = {};
    const auto* weights = product.panels + column * product.groups;
    const typename Numbers::Value* x[R];
    for (int some = 0; some < R; ++some) x[some] = product.x + (row + static_cast<std::size_t>(some)) * product.x_stride;
    for (std::size_t group = 0; group < product.groups; ++group, weights += V * LANES) {
        decltype(Numbers::weights(weights)) weight[V];
        if constexpr (FETCH != Fetch::NONE) {
            const std::size_t ahead = FETCH == Fetch::PANEL ? product.groups : AHEAD;
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) __builtin_prefetch(weights + ahead * V * LANES + vector * LANES, 0, 2);
        }
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            const auto read = Numbers::weights(weights + vector * LANES);
            weight[vector] = R > 1 ? in_register(read) : read;
        }
#pragma GCC unroll 8
        for (int some = 0; some < R; ++some) {
            const auto value = Numbers::values(x[some] + group * product.SIZE);
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[some][vector] = Numbers::add_products(sums[some][vector], value, weight[vector]);
        }
    }
    each<R, V>([&](int some, int vector) {
        const std::size_t here = row + static_cast<std::size_t>(some), from = column + static_cast<std::size_t>(vector) * LANES;
        write(product.y + here * product.y_stride + from, product.ends(sums[some][vector], here, from), product.then, product.columns - from);
    });
}

template <typename Numbers>
using Multiply = void (*)(const PanelProduct<Numbers>&, std::size_t, std::size_t);

template <typename Numbers, int V, Fetch FETCH, int... R>
constexpr std::array<Multiply<Numbers>, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<Numbers, R + 1, V, FETCH>...};
}

template <typename Numbers, Fetch FETCH, int... V>
constexpr std::array<std::array<Multiply<Numbers>, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<Numbers, V + 1, FETCH>(std::make_integer_sequence<int, ROWS>())...};
}

template <typename Numbers, Fetch FETCH>
constexpr auto MULTIPLY = by_vectors<Numbers, FETCH>(std::make_integer_sequence<int, VECTORS>());

}  // namespace panel_products

template <typename Numbers>
void PanelProduct<Numbers>::multiply(std::size_t rows, std::size_t count, Team& team) const {
    const std::size_t work = rows * groups * SIZE * count * panel_products::PANEL;
    const auto parts = std::clamp<std::size_t>(work / Numbers::LEAST_WORK, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) { multiply(rows, count * part / parts, count * (part + 1) / parts); });
}

template <typename Numbers>
void PanelProduct<Numbers>::multiply(std::size_t rows, std::size_t first, std::size_t last) const {
    using namespace panel_products;
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t column = first * PANEL; column < std::min(last * PANEL, columns); column += PANEL) {
        const std::size_t vectors = std::min<std::size_t>(VECTORS, (columns - column + LANES - 1) / LANES);
        for (std::size_t block = 0; block < blocks; ++block) {
            // Blocks of nearly equal size.
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            // A row reads weights as fast as they come; a single block of rows, and of several the last one, leave time to fetch.
            const auto& kernels = rows == 1             ? MULTIPLY<Numbers, Fetch::NONE>
                                  : blocks == 1         ? MULTIPLY<Numbers, Fetch::AHEAD>
                                  : block + 1 == blocks ? MULTIPLY<Numbers, Fetch::PANEL>
                                                        : MULTIPLY<Numbers, Fetch::NONE>;
            kernels[vectors - 1][count - 1](*this, row, column);
        }
    }
}

}  // namespace fewstep
