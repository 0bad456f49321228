// Matrix products with weights packed in panels, for any number format.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "csrc/base/simd_f32.h"
#include "csrc/base/thread_team.h"
#include "csrc/inference/gemm/epilogue.h"

namespace fewstep {

namespace packed_gemm {

// The sums of a block stay in registers: ROWS x VECTORS sums, the weights of one group, and one spare register.
constexpr int VECTORS = 3, ROWS = SIMD_REGISTERS == 32 ? 8 : 4;
constexpr std::size_t PANEL = VECTORS * F32_LANES;

// The groups by which a single block of rows prefetches its weights.
constexpr std::size_t AHEAD = 16;

}  // namespace packed_gemm

// y = epilogue(dequantize(x W^T)). Rows x are groups of values of 32 bits each; weights lie in panels of PANEL outputs, group by
// group. `Format` defines the number format: `Group` (the weights of an output as stored), `Value` (of x), `Sums`, `weights(at)`
// (groups of LANES outputs), `values(at)` (a group broadcast to all lanes), `add_products(sums, values, weights)`, `MIN_WORK`
// (multiplications of a thread's part, which takes about a microsecond; a smaller part takes less time than starting a thread on
// it) and `Dequantize`, which converts sums to floats: `dequantize(sums, row, column)`.
template <typename Format>
struct PackedGemm {
    static constexpr std::size_t GROUP_SIZE = sizeof(std::int32_t) / sizeof(typename Format::Value);  // inputs of a group

    const typename Format::Value* x;  // [rows,groups,GROUP_SIZE]
    std::size_t x_stride, groups;
    const typename Format::Group* panels;
    typename Format::Dequantize dequantize;
    float* y;
    std::size_t y_stride, columns;
    Epilogue epilogue;

    // Compute the outputs of the first `panels` panels for `rows` rows, split among the threads of a team if there is enough work.
    void multiply(std::size_t rows, std::size_t panels, ThreadTeam& team) const;
    // Compute the outputs of the panels [first,last).
    void multiply(std::size_t rows, std::size_t first, std::size_t last) const;
};

// Broadcast 32 bits to all lanes.
template <typename Value>
static inline I32Vector broadcast_group(const Value* at) {
    std::int32_t group;
    std::memcpy(&group, at, sizeof group);
    return group - I32Vector{};
}

// The dequantization of sums that only need a bias.
struct AddBias {
    const float* bias;

    F32Vector operator()(F32Vector sums, std::size_t, std::size_t column) const { return sums + load(bias + column); }
};

namespace packed_gemm {

// Write the sums [rows,vectors] of a block to the outputs from `row` and `column` on. Not a part of the kernels below: unrolled in
// each of them, the conversions would take most of the compiler's time.
template <typename Format>
[[gnu::noinline]] void write_outputs(const PackedGemm<Format>& product, const typename Format::Sums* sums, std::size_t rows,
                                     std::size_t vectors, std::size_t row, std::size_t column) {
    const std::size_t end = column + vectors * F32_LANES;
    for (const std::size_t last = row + rows; row < last; ++row)
        for (std::size_t from = column; from < end; from += F32_LANES, ++sums)
            store_outputs(product.y + row * product.y_stride + from, product.dequantize(*sums, row, from), product.epilogue,
                          product.columns - from);
}

// Multiply R rows from `row` on by the V vectors of the panel from `column` on. With PREFETCH the weights that lie `ahead` groups
// later are requested.
template <typename Format, int R, int V, bool PREFETCH>
void multiply_block(const PackedGemm<Format>& product, std::size_t row, std::size_t column, std::size_t ahead) {
    typename Format::Sums sums[R][V] = {};
    const auto* weights = product.panels + column * product.groups;
    const typename Format::Value* x[R];
    for (int index = 0; index < R; ++index) x[index] = product.x + (row + static_cast<std::size_t>(index)) * product.x_stride;
    for (std::size_t group = 0; group < product.groups; ++group, weights += V * F32_LANES) {
        decltype(Format::weights(weights)) weight[V];
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            if constexpr (PREFETCH) __builtin_prefetch(weights + (ahead * V + static_cast<std::size_t>(vector)) * F32_LANES, 0, 2);
            const auto read = Format::weights(weights + vector * F32_LANES);
            weight[vector] = R > 1 ? in_register(read) : read;
        }
#pragma GCC unroll 8
        for (int index = 0; index < R; ++index) {
            const auto value = Format::values(x[index] + group * product.GROUP_SIZE);
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector)
                sums[index][vector] = Format::add_products(sums[index][vector], value, weight[vector]);
        }
    }
    typename Format::Sums finished[R * V];  // a copy, so that `sums` stay in registers
#pragma GCC unroll 8
    for (int index = 0; index < R; ++index)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) finished[index * V + vector] = sums[index][vector];
    write_outputs<Format>(product, finished, R, V, row, column);
}

template <typename Format>
using Multiply = void (*)(const PackedGemm<Format>&, std::size_t, std::size_t, std::size_t);

// A single row is bound by memory bandwidth and never prefetches.
template <typename Format, int V, bool PREFETCH, int... R>
constexpr std::array<Multiply<Format>, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<Format, R + 1, V, (PREFETCH && R > 0)>...};
}

template <typename Format, bool PREFETCH, int... V>
constexpr std::array<std::array<Multiply<Format>, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<Format, V + 1, PREFETCH>(std::make_integer_sequence<int, ROWS>())...};
}

template <typename Format, bool PREFETCH>
constexpr auto MULTIPLY = by_vectors<Format, PREFETCH>(std::make_integer_sequence<int, VECTORS>());

}  // namespace packed_gemm

template <typename Format>
void PackedGemm<Format>::multiply(std::size_t rows, std::size_t count, ThreadTeam& team) const {
    const std::size_t work = rows * groups * GROUP_SIZE * count * packed_gemm::PANEL;
    const auto parts = std::clamp<std::size_t>(work / Format::MIN_WORK, 1, static_cast<std::size_t>(team.threads()));
    team.run(parts, [&](std::size_t part, int) { multiply(rows, count * part / parts, count * (part + 1) / parts); });
}

template <typename Format>
void PackedGemm<Format>::multiply(std::size_t rows, std::size_t first, std::size_t last) const {
    using namespace packed_gemm;
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t column = first * PANEL; column < std::min(last * PANEL, columns); column += PANEL) {
        const std::size_t vectors = std::min<std::size_t>(VECTORS, (columns - column + F32_LANES - 1) / F32_LANES);
        for (std::size_t block = 0; block < blocks; ++block) {
            // Split the rows into blocks of nearly equal size.
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            // A single block prefetches its own panel, the last of several blocks the next panel.
            const std::size_t ahead = blocks == 1 ? AHEAD : block + 1 == blocks ? groups : 0;
            const auto& kernels = ahead > 0 ? MULTIPLY<Format, true> : MULTIPLY<Format, false>;
            kernels[vectors - 1][count - 1](*this, row, column, ahead);
        }
    }
}

}  // namespace fewstep
