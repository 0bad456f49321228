// Products with weights that are laid out in panels, whatever kind of numbers they are.
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

namespace fewstep {

namespace panel_products {

// Sums of a block stay in registers: ROWS x VECTORS of them, the weights of one group, and one to spare.
constexpr int VECTORS = 3, ROWS = REGISTERS == 32 ? 8 : 4;
constexpr std::size_t PANEL = VECTORS * LANES;

// Long rows are gone through in pieces of so many groups, by so many blocks at a time: a piece of a panel stays in the nearest cache
// while one block after the other reads it, and the sums of blocks wait for the next piece.
constexpr std::size_t PIECE = 64, WAITING = 8;

// Groups of weights that hardly wait in a near cache for their next use: a quarter of a megabyte.
constexpr std::size_t MANY = 1 << 16;

// Which weights a block fetches into the cache while it multiplies: those some groups ahead, or the next piece.
enum class Fetch { NONE, AHEAD, PIECE };
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

// Some rows from `row` on by the panel from `column` on: the groups [first,last) of each, and the sums of those before them and,
// afterwards, of these, too.
template <typename Numbers>
struct Block {
    std::size_t row, column, first, last;
    typename Numbers::Sums (*waiting)[VECTORS];  // [R,V]
};

// Calls body(row, vector) for all sums of a block, unrolled: they stay in registers.
template <int R, int V, typename Body>
inline void each(const Body& body) {
#pragma GCC unroll 8
    for (int row = 0; row < R; ++row)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) body(row, vector);
}

template <typename Numbers, int R, int V, Fetch FETCH>
void multiply_block(const PanelProduct<Numbers>& product, const Block<Numbers>& block) {
    typename Numbers::Sums sums[R][V] = {};
    if (block.first > 0) each<R, V>([&](int row, int vector) { sums[row][vector] = block.waiting[row][vector]; });
    const std::size_t groups = block.last - block.first;
    const auto* weights = product.panels + block.column * product.groups + block.first * V * LANES;
    const typename Numbers::Value* x[R];
    for (int row = 0; row < R; ++row) x[row] = product.x + (block.row + static_cast<std::size_t>(row)) * product.x_stride + block.first * product.SIZE;
    for (std::size_t group = 0; group < groups; ++group, weights += V * LANES) {
        decltype(Numbers::weights(weights)) weight[V];
        if constexpr (FETCH != Fetch::NONE) {
            const std::size_t ahead = FETCH == Fetch::PIECE ? groups : AHEAD;
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) __builtin_prefetch(weights + ahead * V * LANES + vector * LANES, 0, 3);
        }
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            weight[vector] = Numbers::weights(weights + vector * LANES);
            if (R > 1) keep_in_register(weight[vector]);
        }
#pragma GCC unroll 8
        for (int row = 0; row < R; ++row) {
            const auto value = Numbers::values(x[row] + group * product.SIZE);
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[row][vector] = Numbers::add_products(sums[row][vector], value, weight[vector]);
        }
    }
    if (block.last < product.groups) return each<R, V>([&](int row, int vector) { block.waiting[row][vector] = sums[row][vector]; });
    each<R, V>([&](int some, int vector) {
        const std::size_t row = block.row + static_cast<std::size_t>(some), column = block.column + static_cast<std::size_t>(vector) * LANES;
        write(product.y + row * product.y_stride + column, product.ends(sums[some][vector], row, column), product.then, product.columns - column);
    });
}

template <typename Numbers>
using Multiply = void (*)(const PanelProduct<Numbers>&, const Block<Numbers>&);

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
    const std::size_t blocks = (rows + ROWS - 1) / ROWS, length = blocks > 1 && groups > 2 * PIECE ? PIECE : groups;
    const bool far = blocks > 1 && groups > PIECE && groups * columns >= MANY;
    typename Numbers::Sums waiting[WAITING][ROWS][VECTORS];
    for (std::size_t column = first * PANEL; column < std::min(last * PANEL, columns); column += PANEL) {
        const std::size_t vectors = std::min<std::size_t>(VECTORS, (columns - column + LANES - 1) / LANES);
        for (std::size_t some = 0; some < blocks; some += WAITING)
            for (std::size_t group = 0; group < groups; group += length)
                for (std::size_t block = some; block < std::min(blocks, some + WAITING); ++block) {
                    // Blocks of nearly equal size.
                    const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
                    // A single block goes through all weights from end to end, a row even as fast as they come; of several the last one
                    // leaves time to fetch.
                    const auto& kernels = blocks == 1 && rows > 1          ? MULTIPLY<Numbers, Fetch::AHEAD>
                                          : far && block + 1 == blocks ? MULTIPLY<Numbers, Fetch::PIECE>
                                                                       : MULTIPLY<Numbers, Fetch::NONE>;
                    kernels[vectors - 1][count - 1](*this, {row, column, group, std::min(group + length, groups), waiting[block - some]});
                }
    }
}

}  // namespace fewstep
