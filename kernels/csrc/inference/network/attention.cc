#include "csrc/inference/network/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES;

// Scores x [R,length], rows `room` apart, to softmax(scale x), in place. There is room for whole vectors. Rows take each step
// together: one by itself would wait for its own sums.
template <int R>
void normalise(float* x, std::size_t length, std::size_t room, float scale) {
    Floats highest[R], top[R], sum[R] = {}, beyond;
    const std::size_t last = room - STEP;
    for (std::size_t lane = 0; lane < STEP; ++lane) beyond[lane] = last + lane < length ? 0.0F : NONE;
    for (int row = 0; row < R; ++row) {
        store(x + row * room + last, load(x + row * room + last) + beyond);
        highest[row] = load(x + row * room);
    }
    for (std::size_t place = STEP; place < room; place += STEP)
        for (int row = 0; row < R; ++row) highest[row] = larger(highest[row], load(x + row * room + place));
    for (int row = 0; row < R; ++row) top[row] = all(highest_of(highest[row]));
    for (std::size_t place = 0; place < room; place += STEP)
        for (int row = 0; row < R; ++row) {
            const Floats weight = exp_of((load(x + row * room + place) - top[row]) * scale);
            store(x + row * room + place, weight);
            sum[row] += weight;
        }
    for (int row = 0; row < R; ++row) {
        const Floats factor = all(1.0F / sum_of(sum[row]));
        for (std::size_t place = 0; place < room; place += STEP) store(x + row * room + place, load(x + row * room + place) * factor);
    }
}

// A few queries that read the same keys and values, and their weights [R,H,room].
struct Queries {
    const float* first;
    std::size_t stride;
    Heads heads;
    std::size_t room;
    float* weights;

    const float* query(int row, std::size_t head) const { return first + static_cast<std::size_t>(row) * stride + head * heads.size; }
    float* weight(int row, std::size_t head) const { return weights + (static_cast<std::size_t>(row) * heads.count + head) * room; }
};

// Scores over V vectors of turned keys, whose units are `room` apart.
template <int R, int V>
void score_places(const float* const* query, std::size_t size, const float* keys, std::size_t room, std::size_t place, float* const* weight) {
    Floats even[R][V] = {}, odd[R][V] = {};
    std::size_t unit = 0;
    keys += place;
    for (; unit + 2 <= size; unit += 2, keys += 2 * room)
#pragma GCC unroll 4
        for (int row = 0; row < R; ++row)
#pragma GCC unroll 2
            for (int vector = 0; vector < V; ++vector) {
                even[row][vector] = fused(all(query[row][unit]), load(keys + vector * STEP), even[row][vector]);
                odd[row][vector] = fused(all(query[row][unit + 1]), load(keys + room + vector * STEP), odd[row][vector]);
            }
    for (int row = 0; row < R; ++row)
        for (int vector = 0; vector < V; ++vector) {
            if (unit < size) even[row][vector] = fused(all(query[row][unit]), load(keys + vector * STEP), even[row][vector]);
            store(weight[row] + place + vector * STEP, even[row][vector] + odd[row][vector]);
        }
}

// Scores over turned keys: a few vectors of places at a time.
template <int R>
void score(const Queries& queries, const Sequence& sequence) {
    constexpr int V = REGISTERS == 32 ? 2 : 1;  // whose sums stay in registers
    const std::size_t size = queries.heads.size, room = queries.room;
    for (std::size_t head = 0; head < queries.heads.count; ++head) {
        const float *keys = sequence.keys + head * size * room, *query[R];
        float* weight[R];
        for (int row = 0; row < R; ++row) query[row] = queries.query(row, head), weight[row] = queries.weight(row, head);
        std::size_t place = 0;
        for (; place + V * STEP <= room; place += V * STEP) score_places<R, V>(query, size, keys, room, place, weight);
        if (place < room) score_places<R, 1>(query, size, keys, room, place, weight);
    }
}

// Scores over slots: a vector of units at a time, summed for a vector of slots at a time.
template <int R>
void score(const Queries& queries, const std::vector<const float*>& slots) {
    const std::size_t size = queries.heads.size, whole = size / STEP * STEP;
    for (std::size_t first = 0; first < slots.size(); first += STEP) {
        const std::size_t count = std::min(STEP, slots.size() - first);
        for (std::size_t head = 0; head < queries.heads.count; ++head)
            for (int row = 0; row < R; ++row) {
                const float* query = queries.query(row, head);
                Floats sums[STEP] = {};
                for (std::size_t slot = 0; slot < count; ++slot) {
                    const float* key = slots[first + slot] + head * size;
                    for (std::size_t unit = 0; unit < whole; unit += STEP) sums[slot] = fused(load(key + unit), load(query + unit), sums[slot]);
                }
                float* weights = queries.weight(row, head) + first;
                store(weights, sums_of(sums));
                for (std::size_t slot = 0; slot < count; ++slot)
                    for (std::size_t rest = whole; rest < size; ++rest)
                        weights[slot] = fused(slots[first + slot][head * size + rest], query[rest], weights[slot]);
            }
    }
}

// sum_s weights[s] values(s); values(s) is the start of a sequence's values [D] at s.
template <int R, typename Values>
void mix(const Queries& queries, std::size_t length, const Values& values, float* mixed) {
    const auto [count, size] = queries.heads;
    const std::size_t width = count * size;
    for (std::size_t head = 0; head < count; ++head) {
        const float* weight[R];
        for (int row = 0; row < R; ++row) weight[row] = queries.weight(row, head);
        std::size_t unit = head * size;
        const std::size_t end = unit + size;
        for (; unit + 2 * STEP <= end; unit += 2 * STEP) {
            Floats low[R] = {}, high[R] = {};
            for (std::size_t s = 0; s < length; ++s) {
                const float* at = values(s) + unit;
                const Floats one = load(at), other = load(at + STEP);
#pragma GCC unroll 4
                for (int row = 0; row < R; ++row) {
                    low[row] = fused(all(weight[row][s]), one, low[row]);
                    high[row] = fused(all(weight[row][s]), other, high[row]);
                }
            }
            for (int row = 0; row < R; ++row) {
                store(mixed + static_cast<std::size_t>(row) * width + unit, low[row]);
                store(mixed + static_cast<std::size_t>(row) * width + unit + STEP, high[row]);
            }
        }
        for (; unit + STEP <= end; unit += STEP) {
            Floats sums[R] = {};
            for (std::size_t s = 0; s < length; ++s)
                for (int row = 0; row < R; ++row) sums[row] = fused(all(weight[row][s]), load(values(s) + unit), sums[row]);
            for (int row = 0; row < R; ++row) store(mixed + static_cast<std::size_t>(row) * width + unit, sums[row]);
        }
        for (; unit < end; ++unit)
            for (int row = 0; row < R; ++row) {
                float sum = 0.0F;
                for (std::size_t s = 0; s < length; ++s) sum = fused(weight[row][s], values(s)[unit], sum);
                mixed[static_cast<std::size_t>(row) * width + unit] = sum;
            }
    }
}

constexpr std::size_t TOGETHER = 4;  // queries whose sums stay in registers

// Calls body(first row, std::integral_constant R) for blocks of R <= TOGETHER rows.
template <typename Body>
void in_blocks(std::size_t rows, const Body& body) {
    std::size_t row = 0;
    for (; row + TOGETHER <= rows; row += TOGETHER) body(row, std::integral_constant<int, 4>());
    switch (rows - row) {
        case 3: return body(row, std::integral_constant<int, 3>());
        case 2: return body(row, std::integral_constant<int, 2>());
        case 1: return body(row, std::integral_constant<int, 1>());
        default: return;
    }
}

void normalise(const Queries& queries, std::size_t rows, std::size_t length) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(queries.heads.size));
    in_blocks(rows, [&](std::size_t row, auto together) { normalise<together>(queries.weights + row * queries.room, length, queries.room, scale); });
}

}  // namespace

std::size_t room_for(std::size_t length) { return (length + STEP - 1) / STEP * STEP; }

void lay_out_keys(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width, float* keys) {
    const std::size_t room = room_for(length), end = last == length ? room : last;
    std::size_t unit = 0;
    for (; unit + STEP <= width; unit += STEP)
        for (std::size_t start = first; start < end; start = std::min(end, start + STEP)) {
            Floats tile[STEP];
            for (std::size_t row = 0; row < STEP; ++row)
                tile[row] = start + row < last ? load(rows + (start + row - first) * stride + unit) : Floats{};
            turn(tile);
            float* to = keys + unit * room + start;
            if (start + STEP <= end)
                for (std::size_t row = 0; row < STEP; ++row) store(to + row * room, tile[row]);
            else
                for (std::size_t row = 0; row < STEP; ++row) std::memcpy(to + row * room, &tile[row], (end - start) * sizeof(float));
        }
    for (; unit < width; ++unit)
        for (std::size_t s = first; s < end; ++s) keys[unit * room + s] = s < last ? rows[(s - first) * stride + unit] : 0.0F;
}

void lay_out(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width, float* keys,
             float* values) {
    lay_out_keys(rows, stride, first, last, length, width, keys);
    for (std::size_t s = first; s < last; ++s) std::copy_n(rows + (s - first) * stride + width, width, values + s * width);
}

void Attention::attend(const float* queries, std::size_t stride, std::size_t rows, const Sequence& sequence, float* mixed) {
    const std::size_t room = sequence.room, width = heads_.width(), length = sequence.length;
    weights_.reserve(TOGETHER * heads_.count * room);
    in_blocks(rows, [&](std::size_t first, auto together) {
        constexpr int R = together;
        const Queries block{queries + first * stride, stride, heads_, room, weights_.data()};
        score<R>(block, sequence);
        normalise(block, R * heads_.count, length);
        mix<R>(block, length, [&](std::size_t s) { return sequence.values + s * width; }, mixed + first * width);
    });
}

void Attention::attend(const float* queries, std::size_t stride, std::size_t rows, const std::vector<const float*>& slots,
                       const std::vector<char>& seen, float* mixed) {
    const std::size_t length = slots.size(), room = room_for(length), width = heads_.width();
    weights_.reserve(TOGETHER * heads_.count * room);
    in_blocks(rows, [&](std::size_t first, auto together) {
        constexpr int R = together;
        const Queries block{queries + first * stride, stride, heads_, room, weights_.data()};
        score<R>(block, slots);
        for (std::size_t row = 0; row < (seen.empty() ? 0 : R * heads_.count); ++row)
            for (std::size_t slot = 0; slot < length; ++slot)
                if (seen[(first + row / heads_.count) * length + slot] == 0) block.weights[row * room + slot] = NONE;
        normalise(block, R * heads_.count, length);
        mix<R>(block, length, [&](std::size_t s) { return slots[s] + width; }, mixed + first * width);
    });
}

}  // namespace fewstep
