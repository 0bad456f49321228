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

// The weights that a block prefetches while it multiplies: those AHEAD groups later, or those of the next panel.
enum class Prefetch { NONE, AHEAD, PANEL };
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

// Call body(row, vector) for all sums of a block, unrolled so that they stay in registers.
template <int R, int V, typename Body>
inline void for_each_sum(const Body& body) {
#pragma GCC unroll 8
    for (int row = 0; row < R; ++row)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) body(row, vector);
}

// Multiply R rows from `row` on by the V vectors of the panel from `column` on.
template <typename Format, int R, int V, Prefetch PREFETCH>
void multiply_block(const PackedGemm<Format>& product, std::size_t row, std::size_t column) {
    typename Format::Sums sums[R][V] = {};
    const auto* weights = product.panels + column * product.groups;
    const typename Format::Value* x[R];
    for (int index = 0; index < R; ++index) x[index] = product.x + (row + static_cast<std::size_t>(index)) * product.x_stride;
    for (std::size_t group = 0; group < product.groups; ++group, weights += V * F32_LANES) {
        decltype(Format::weights(weights)) weight[V];
        if constexpr (PREFETCH != Prefetch::NONE) {
            const std::size_t ahead = PREFETCH == Prefetch::PANEL ? product.groups : AHEAD;
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector)
                __builtin_prefetch(weights + ahead * V * F32_LANES + vector * F32_LANES, 0, 2);
        }
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
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
    for_each_sum<R, V>([&](int index, int vector) {
        const std::size_t here = row + static_cast<std::size_t>(index),
                          from = column + static_cast<std::size_t>(vector) * F32_LANES;
        store_outputs(product.y + here * product.y_stride + from, product.dequantize(sums[index][vector], here, from),
                      product.epilogue, product.columns - from);
    });
}

template <typename Format>
using Multiply = void (*)(const PackedGemm<Format>&, std::size_t, std::size_t);

template <typename Format, int V, Prefetch PREFETCH, int... R>
constexpr std::array<Multiply<Format>, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<Format, R + 1, V, PREFETCH>...};
}

template <typename Format, Prefetch PREFETCH, int... V>
constexpr std::array<std::array<Multiply<Format>, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<Format, V + 1, PREFETCH>(std::make_integer_sequence<int, ROWS>())...};
}

template <typename Format, Prefetch PREFETCH>
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
            // A single row is bound by memory bandwidth and does not prefetch. A block of several rows leaves time to: a single
            // block prefetches ahead, the last of several blocks prefetches the next panel.
            const auto& kernels = rows == 1             ? MULTIPLY<Format, Prefetch::NONE>
                                  : blocks == 1         ? MULTIPLY<Format, Prefetch::AHEAD>
                                  : block + 1 == blocks ? MULTIPLY<Format, Prefetch::PANEL>
                                                        : MULTIPLY<Format, Prefetch::NONE>;
            kernels[vectors - 1][count - 1](*this, row, column);
        }
    }
}

}  // namespace fewstep
