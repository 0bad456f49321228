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
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// The epilogue of a matrix product: how a vector of sums is written to the output.

// The last outputs, if they do not fill a vector.
[[gnu::noinline]] static void store_partial(float* y, const F32Vector& sum, bool add, std::size_t columns) {
    for (std::size_t column = 0; column < columns; ++column) {
        const float value = sum[static_cast<int>(column)];
        y[column] = add ? value + y[column] : value;
    }
}

template <Epilogue EPILOGUE>
inline void store_outputs(float* y, F32Vector sum, std::size_t columns) {
    if constexpr (EPILOGUE == Epilogue::RELU) sum = vector_max(sum, F32Vector{});
    if constexpr (EPILOGUE == Epilogue::GELU) sum = vector_gelu(sum);
    if constexpr (EPILOGUE == Epilogue::SWISH) sum = vector_swish(sum);
    if (columns < F32_LANES) return store_partial(y, sum, EPILOGUE == Epilogue::ADD, columns);
    if constexpr (EPILOGUE == Epilogue::ADD) sum += load(y);
    store(y, sum);
}

namespace packed_gemm {

// The sums of a block stay in registers: ROWS x VECTORS sums, the weights of one group, and one spare register.
constexpr int VECTORS = 3, ROWS = SIMD_REGISTERS == 32 ? 8 : 4;
constexpr std::size_t PANEL = VECTORS * F32_LANES;

// The steps by which a single block of rows prefetches its weights.
constexpr std::size_t AHEAD = 16, CACHE_LINE = 64;

}  // namespace packed_gemm

// y = epilogue(dequantize(x W^T)). Rows x are groups of values of 32 bits each; weights lie in panels of PANEL outputs, step by
// step of one or more groups. `Format` defines the number format:
// - `Value` (of x), `Group` (the weights of a group of inputs for one output as stored), `Sums`;
// - `STEP` (groups of a step), `HOLD` (whether the weights of a step are held in registers for all rows);
// - `values(at)` (those of a step, each group broadcast to all lanes), `weights(at)` (those of a step for LANES outputs) and
//   `add_products(sums, values, weights)`;
// - `MIN_WORK` (multiplications of a thread's part, which takes about a microsecond; a smaller part takes less time than starting a
//   thread on it);
// - `Dequantize`, whose `outputs(column)` converts the sums of LANES outputs to floats: `outputs(sums, row)`.
template <typename Format>
struct PackedGemm {
    static constexpr std::size_t GROUP_SIZE = sizeof(std::int32_t) / sizeof(typename Format::Value);  // inputs of a group

    const typename Format::Value* x;  // [rows,groups,GROUP_SIZE]
    std::size_t x_stride, groups;     // values from a row to the next; a multiple of STEP
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

    struct Outputs {
        F32Vector bias;

        F32Vector operator()(F32Vector sums, std::size_t) const { return sums + bias; }
    };
    Outputs outputs(std::size_t column) const { return {load(bias + column)}; }
};

namespace packed_gemm {

// Sums [rows,vectors] of the outputs from `row` and `column` on.
template <typename Format>
struct Block {
    const typename Format::Sums* sums;
    std::size_t rows, vectors, row, column;
};

template <typename Format, Epilogue EPILOGUE>
void write_outputs(const PackedGemm<Format>& product, const Block<Format>& block) {
    for (std::size_t vector = 0; vector < block.vectors; ++vector) {
        const std::size_t column = block.column + vector * F32_LANES;
        const auto outputs = product.dequantize.outputs(column);
        float* y = product.y + block.row * product.y_stride + column;
        for (std::size_t row = 0; row < block.rows; ++row, y += product.y_stride)
            store_outputs<EPILOGUE>(y, outputs(block.sums[row * block.vectors + vector], block.row + row),
                                    product.columns - column);
    }
}

// Not a part of the kernels below: unrolled in each of them, the conversions would take most of the compiler's time.
template <typename Format>
[[gnu::noinline]] void write_outputs(const PackedGemm<Format>& product, const Block<Format>& block) {
    switch (product.epilogue) {
        case Epilogue::STORE:
            return write_outputs<Format, Epilogue::STORE>(product, block);
        case Epilogue::RELU:
            return write_outputs<Format, Epilogue::RELU>(product, block);
        case Epilogue::GELU:
            return write_outputs<Format, Epilogue::GELU>(product, block);
        case Epilogue::SWISH:
            return write_outputs<Format, Epilogue::SWISH>(product, block);
        case Epilogue::ADD:
            return write_outputs<Format, Epilogue::ADD>(product, block);
    }
}

// Add the products of a step to the sums of R rows and V vectors.
template <typename Format, int R, int V>
inline void add_step(typename Format::Sums (&sums)[R][V], const typename Format::Value* const (&x)[R], std::size_t offset,
                     const typename Format::Group* weights) {
    constexpr int WIDTH = Format::STEP * F32_LANES;
    decltype(Format::weights(weights)) held[V];
    if constexpr (Format::HOLD && R > 1)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) held[vector] = in_register(Format::weights(weights + vector * WIDTH));
#pragma GCC unroll 8
    for (int index = 0; index < R; ++index) {
        const auto values = Format::values(x[index] + offset);
        if constexpr (!Format::HOLD) weights = unrelated(weights);
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) {
            if constexpr (!Format::HOLD || R == 1) held[vector] = Format::weights(weights + vector * WIDTH);
            sums[index][vector] = Format::add_products(sums[index][vector], values, held[vector]);
        }
    }
}

// Multiply R rows from `row` on by the V vectors of the panel from `column` on. With PREFETCH the weights that lie `ahead` steps
// later are requested.
template <typename Format, int R, int V, bool PREFETCH>
void multiply_block(const PackedGemm<Format>& product, std::size_t row, std::size_t column, std::size_t ahead) {
    constexpr std::size_t STEP = Format::STEP, WIDTH = V * STEP * F32_LANES;
    typename Format::Sums sums[R][V] = {};
    const auto* weights = product.panels + column * product.groups;
    const typename Format::Value* x[R];
    for (int index = 0; index < R; ++index) x[index] = product.x + (row + static_cast<std::size_t>(index)) * product.x_stride;
    const std::size_t end = product.groups * product.GROUP_SIZE;
    for (std::size_t offset = 0; offset < end; offset += STEP * product.GROUP_SIZE, weights += WIDTH) {
        if constexpr (PREFETCH)
#pragma GCC unroll 6
            for (std::size_t line = 0; line < WIDTH; line += CACHE_LINE / sizeof *weights)
                __builtin_prefetch(weights + ahead * WIDTH + line, 0, 2);
        add_step<Format, R, V>(sums, x, offset, weights);
    }
    typename Format::Sums finished[R * V];  // a copy, so that `sums` stay in registers
#pragma GCC unroll 8
    for (int index = 0; index < R; ++index)
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) finished[index * V + vector] = sums[index][vector];
    write_outputs<Format>(product, {finished, R, V, row, column});
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
            const std::size_t ahead = blocks == 1 ? AHEAD : block + 1 == blocks ? groups / Format::STEP : 0;
            const auto& kernels = ahead > 0 ? MULTIPLY<Format, true> : MULTIPLY<Format, false>;
            kernels[vectors - 1][count - 1](*this, row, column, ahead);
        }
    }
}

}  // namespace fewstep
