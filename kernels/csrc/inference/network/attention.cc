#include "csrc/inference/network/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = F32_LANES;

// x = softmax(scale x) in place, for scores x [R,length] in rows of `padded` floats, a multiple of the vector size. The R rows
// advance together, because a single row would wait for its own sums.
template <int R>
void softmax(float* x, std::size_t length, std::size_t padded, float scale) {
    F32Vector highest[R], top[R], sum[R] = {}, padding_mask;
    const std::size_t last = padded - STEP;
    for (std::size_t lane = 0; lane < STEP; ++lane) padding_mask[lane] = last + lane < length ? 0.0F : MINUS_INFINITY;
    for (int row = 0; row < R; ++row) {
        store(x + row * padded + last, load(x + row * padded + last) + padding_mask);
        highest[row] = load(x + row * padded);
    }
    for (std::size_t position = STEP; position < padded; position += STEP)
        for (int row = 0; row < R; ++row) highest[row] = vector_max(highest[row], load(x + row * padded + position));
    for (int row = 0; row < R; ++row) top[row] = broadcast(horizontal_max(highest[row]));
    for (std::size_t position = 0; position < padded; position += STEP)
        for (int row = 0; row < R; ++row) {
            const F32Vector weight = vector_exp((load(x + row * padded + position) - top[row]) * scale);
            store(x + row * padded + position, weight);
            sum[row] += weight;
        }
    for (int row = 0; row < R; ++row) {
        const F32Vector factor = broadcast(1.0F / horizontal_sum(sum[row]));
        for (std::size_t position = 0; position < padded; position += STEP)
            store(x + row * padded + position, load(x + row * padded + position) * factor);
    }
}

// Queries that attend to the same keys and values, and their weights [R,H,padded].
struct QueryBlock {
    const float* first;
    std::size_t stride;
    Heads heads;
    std::size_t padded;
    float* weights;

    const float* query(int row, std::size_t head) const {
        return first + static_cast<std::size_t>(row) * stride + head * heads.size;
    }
    float* weight(int row, std::size_t head) const {
        return weights + (static_cast<std::size_t>(row) * heads.count + head) * padded;
    }
};

// Scores over V vectors of transposed keys, whose units are `padded` floats apart.
template <int R, int V>
void score_positions(const float* const* query, std::size_t size, const float* keys, std::size_t padded, std::size_t position,
                     float* const* weight) {
    F32Vector even[R][V] = {}, odd[R][V] = {};
    std::size_t unit = 0;
    keys += position;
    for (; unit + 2 <= size; unit += 2, keys += 2 * padded)
#pragma GCC unroll 4
        for (int row = 0; row < R; ++row)
#pragma GCC unroll 2
            for (int vector = 0; vector < V; ++vector) {
                even[row][vector] = multiply_add(broadcast(query[row][unit]), load(keys + vector * STEP), even[row][vector]);
                odd[row][vector] =
                    multiply_add(broadcast(query[row][unit + 1]), load(keys + padded + vector * STEP), odd[row][vector]);
            }
    for (int row = 0; row < R; ++row)
        for (int vector = 0; vector < V; ++vector) {
            if (unit < size)
                even[row][vector] = multiply_add(broadcast(query[row][unit]), load(keys + vector * STEP), even[row][vector]);
            store(weight[row] + position + vector * STEP, even[row][vector] + odd[row][vector]);
        }
}

// Scores over transposed keys, a few vectors of positions at a time.
template <int R>
void score(const QueryBlock& queries, const KeyValues& keys_values) {
    constexpr int V = SIMD_REGISTERS == 32 ? 2 : 1;  // vectors whose sums stay in registers
    const std::size_t size = queries.heads.size, padded = queries.padded;
    for (std::size_t head = 0; head < queries.heads.count; ++head) {
        const float *keys = keys_values.keys + head * size * padded, *query[R];
        float* weight[R];
        for (int row = 0; row < R; ++row) query[row] = queries.query(row, head), weight[row] = queries.weight(row, head);
        std::size_t position = 0;
        for (; position + V * STEP <= padded; position += V * STEP)
            score_positions<R, V>(query, size, keys, padded, position, weight);
        if (position < padded) score_positions<R, 1>(query, size, keys, padded, position, weight);
    }
}

// Scores over slots: each dot product sums a vector of units, and a vector of slots is reduced at a time.
template <int R>
void score(const QueryBlock& queries, const std::vector<const float*>& slots) {
    const std::size_t size = queries.heads.size, whole = size / STEP * STEP;
    for (std::size_t first = 0; first < slots.size(); first += STEP) {
        const std::size_t count = std::min(STEP, slots.size() - first);
        for (std::size_t head = 0; head < queries.heads.count; ++head)
            for (int row = 0; row < R; ++row) {
                const float* query = queries.query(row, head);
                F32Vector sums[STEP] = {};
                for (std::size_t slot = 0; slot < count; ++slot) {
                    const float* key = slots[first + slot] + head * size;
                    for (std::size_t unit = 0; unit < whole; unit += STEP)
                        sums[slot] = multiply_add(load(key + unit), load(query + unit), sums[slot]);
                }
                float* weights = queries.weight(row, head) + first;
                store(weights, horizontal_sums(sums));
                for (std::size_t slot = 0; slot < count; ++slot)
                    for (std::size_t tail = whole; tail < size; ++tail)
                        weights[slot] = multiply_add(slots[first + slot][head * size + tail], query[tail], weights[slot]);
            }
    }
}

// The sums of V vectors of units from `unit` on, for R rows of outputs of `width` units.
template <int R, int V, typename Values>
void sum_units(const float* const* weight, std::size_t length, const Values& values, std::size_t unit, float* outputs,
               std::size_t width) {
    F32Vector sums[R][V] = {};
    for (std::size_t s = 0; s < length; ++s) {
        const float* value = values(s) + unit;
        F32Vector units[V];
#pragma GCC unroll 8
        for (int vector = 0; vector < V; ++vector) {
            // A single row waits for memory, whose prefetcher does not follow steps of whole rows: request the next units too.
            if constexpr (R == 1) __builtin_prefetch(value + (V + vector) * STEP, 0, 2);
            units[vector] = load(value + vector * STEP);
        }
#pragma GCC unroll 4
        for (int row = 0; row < R; ++row)
#pragma GCC unroll 8
            for (int vector = 0; vector < V; ++vector)
                sums[row][vector] = multiply_add(broadcast(weight[row][s]), units[vector], sums[row][vector]);
    }
    for (int row = 0; row < R; ++row)
        for (int vector = 0; vector < V; ++vector)
            store(outputs + static_cast<std::size_t>(row) * width + unit + vector * STEP, sums[row][vector]);
}

// sum_s weights[s] values(s), where values(s) points to the values [D] at position s.
template <int R, typename Values>
void weighted_sum(const QueryBlock& queries, std::size_t length, const Values& values, float* outputs) {
    const auto [count, size] = queries.heads;
    const std::size_t width = count * size;
    constexpr int V = R == 1 ? 4 : 2;  // vectors whose sums stay in registers
    for (std::size_t head = 0; head < count; ++head) {
        const float* weight[R];
        for (int row = 0; row < R; ++row) weight[row] = queries.weight(row, head);
        std::size_t unit = head * size;
        const std::size_t end = unit + size;
        for (; unit + V * STEP <= end; unit += V * STEP) sum_units<R, V>(weight, length, values, unit, outputs, width);
        for (; unit + STEP <= end; unit += STEP) sum_units<R, 1>(weight, length, values, unit, outputs, width);
        for (; unit < end; ++unit)
            for (int row = 0; row < R; ++row) {
                float sum = 0.0F;
                for (std::size_t s = 0; s < length; ++s) sum = multiply_add(weight[row][s], values(s)[unit], sum);
                outputs[static_cast<std::size_t>(row) * width + unit] = sum;
            }
    }
}

constexpr std::size_t ROW_BLOCK = 4;  // queries whose sums stay in registers

// Call body(first row, std::integral_constant R) for blocks of R <= ROW_BLOCK rows.
template <typename Body>
void for_each_row_block(std::size_t rows, const Body& body) {
    std::size_t row = 0;
    for (; row + ROW_BLOCK <= rows; row += ROW_BLOCK) body(row, std::integral_constant<int, 4>());
    switch (rows - row) {
        case 3:
            return body(row, std::integral_constant<int, 3>());
        case 2:
            return body(row, std::integral_constant<int, 2>());
        case 1:
            return body(row, std::integral_constant<int, 1>());
        default:
            return;
    }
}

void softmax(const QueryBlock& queries, std::size_t rows, std::size_t length) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(queries.heads.size));
    for_each_row_block(rows, [&](std::size_t row, auto block_rows) {
        softmax<block_rows>(queries.weights + row * queries.padded, length, queries.padded, scale);
    });
}

}  // namespace

std::size_t padded_length(std::size_t length) { return (length + STEP - 1) / STEP * STEP; }

void pack_keys(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width,
               float* keys) {
    const std::size_t padded = padded_length(length), end = last == length ? padded : last;
    std::size_t unit = 0;
    for (; unit + STEP <= width; unit += STEP)
        for (std::size_t start = first; start < end; start = std::min(end, start + STEP)) {
            F32Vector tile[STEP];
            for (std::size_t row = 0; row < STEP; ++row)
                tile[row] = start + row < last ? load(rows + (start + row - first) * stride + unit) : F32Vector{};
            transpose(tile);
            float* to = keys + unit * padded + start;
            if (start + STEP <= end)
                for (std::size_t row = 0; row < STEP; ++row) store(to + row * padded, tile[row]);
            else
                for (std::size_t row = 0; row < STEP; ++row)
                    std::memcpy(to + row * padded, &tile[row], (end - start) * sizeof(float));
        }
    for (; unit < width; ++unit)
        for (std::size_t s = first; s < end; ++s) keys[unit * padded + s] = s < last ? rows[(s - first) * stride + unit] : 0.0F;
}

void pack_keys_values(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length,
                      std::size_t width, float* keys, float* values) {
    pack_keys(rows, stride, first, last, length, width, keys);
    for (std::size_t s = first; s < last; ++s) std::copy_n(rows + (s - first) * stride + width, width, values + s * width);
}

void Attention::attend(const float* queries, std::size_t stride, std::size_t rows, const KeyValues& keys_values, float* outputs) {
    const std::size_t padded = keys_values.padded, width = heads_.width(), length = keys_values.length;
    weights_.reserve(ROW_BLOCK * heads_.count * padded);
    for_each_row_block(rows, [&](std::size_t first, auto block_rows) {
        constexpr int R = block_rows;
        const QueryBlock block{queries + first * stride, stride, heads_, padded, weights_.data()};
        score<R>(block, keys_values);
        softmax(block, R * heads_.count, length);
        weighted_sum<R>(block, length, [&](std::size_t s) { return keys_values.values + s * width; }, outputs + first * width);
    });
}

void Attention::attend(const float* queries, std::size_t stride, std::size_t rows, const std::vector<const float*>& slots,
                       const std::vector<char>& visible, float* outputs) {
    const std::size_t length = slots.size(), padded = padded_length(length), width = heads_.width();
    weights_.reserve(ROW_BLOCK * heads_.count * padded);
    for_each_row_block(rows, [&](std::size_t first, auto block_rows) {
        constexpr int R = block_rows;
        const QueryBlock block{queries + first * stride, stride, heads_, padded, weights_.data()};
        score<R>(block, slots);
        for (std::size_t row = 0; row < (visible.empty() ? 0 : R * heads_.count); ++row)
            for (std::size_t slot = 0; slot < length; ++slot)
                if (visible[(first + row / heads_.count) * length + slot] == 0) block.weights[row * padded + slot] = MINUS_INFINITY;
        softmax(block, R * heads_.count, length);
        weighted_sum<R>(block, length, [&](std::size_t s) { return slots[s] + width; }, outputs + first * width);
    });
}

}  // namespace fewstep
