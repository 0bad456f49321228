#include "csrc/ops/training/fused_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "csrc/base/bfloat16.h"
#include "csrc/base/buffer.h"
#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES;
constexpr int VECTORS = REGISTERS == 32 ? 3 : 2, ROWS = REGISTERS == 32 ? 8 : 4;  // sums that are held in registers

std::size_t up(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

// A [rows,depth] whose elements lie anywhere, and B [depth,columns] and C [rows,columns] with whole vectors in their rows.
struct Product {
    const float* a;
    std::size_t row_stride, depth_stride;
    const float* b;
    std::size_t b_stride;
    float* c;
    std::size_t c_stride, depth;
};

template <int R, int V>
void multiply_block(const Product& given, std::size_t row, std::size_t column) {
    Floats sums[R][V] = {};
    const float *a = given.a + row * given.row_stride, *b = given.b + column;
    for (std::size_t place = 0; place < given.depth; ++place, a += given.depth_stride, b += given.b_stride) {
        Floats vectors[V];
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) vectors[vector] = in_register(load(b + vector * LANES));
#pragma GCC unroll 8
        for (int one = 0; one < R; ++one) {
            const float factor = a[static_cast<std::size_t>(one) * given.row_stride];
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector) sums[one][vector] = fused(all(factor), vectors[vector], sums[one][vector]);
        }
    }
    for (int one = 0; one < R; ++one)
        for (int vector = 0; vector < V; ++vector)
            store(given.c + (row + static_cast<std::size_t>(one)) * given.c_stride + column + static_cast<std::size_t>(vector) * STEP,
                  sums[one][vector]);
}

using Multiply = void (*)(const Product&, std::size_t, std::size_t);

template <int V, int... R>
constexpr std::array<Multiply, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<R + 1, V>...};
}

template <int... V>
constexpr std::array<std::array<Multiply, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<V + 1>(std::make_integer_sequence<int, ROWS>())...};
}

constexpr auto MULTIPLY = by_vectors(std::make_integer_sequence<int, VECTORS>());

// C = A B
void multiply(const Product& given, std::size_t rows, std::size_t columns) {
    constexpr std::size_t most = static_cast<std::size_t>(VECTORS) * STEP;
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t column = 0; column < columns; column += most) {
        const std::size_t vectors = std::min(most, columns - column) / STEP;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            MULTIPLY[vectors - 1][count - 1](given, row, column);
        }
    }
}

// What one head of one sentence is worked on with. Rows of d floats are filled up to whole vectors with zeros.
class Head {
 public:
    Head(const AttentionShape& shape, std::size_t sentence)
        : queries_(shape.queries), size_(shape.size), width_(up(shape.size)), causal_(shape.causal),
          seen_(shape.seen == nullptr ? nullptr : shape.seen + sentence * shape.keys), keys_(shape.keys),
          scale_(1.0F / std::sqrt(static_cast<float>(shape.size))) {
        while (seen_ != nullptr && keys_ > 0 && !seen_[keys_ - 1]) --keys_;
        room_ = up(keys_);
    }

    std::size_t keys() const { return keys_; }  // up to the last one that may be seen
    std::size_t width() const { return width_; }
    std::size_t room() const { return room_; }
    float scale() const { return scale_; }

    // Rows as floats [rows,width], times a factor.
    template <typename Value>
    void read(const Value* from, std::ptrdiff_t stride, std::size_t rows, float factor, float* to) const {
        for (std::size_t row = 0; row < rows; ++row, from += stride, to += width_) {
            std::size_t unit = 0;
            for (; unit + STEP <= size_; unit += STEP) store(to + unit, load(from + unit) * factor);
            for (; unit < size_; ++unit) to[unit] = widened(from[unit]) * factor;
            for (; unit < width_; ++unit) to[unit] = 0.0F;
        }
    }

    // Rows [keys,width] turned, to [size,room].
    void turn(const float* rows, float* to) const {
        for (std::size_t unit = 0; unit < size_; ++unit, to += room_) {
            for (std::size_t key = 0; key < keys_; ++key) to[key] = rows[key * width_ + unit];
            std::fill(to + keys_, to + room_, 0.0F);
        }
    }

    template <typename Value>
    void write(const float* from, std::size_t rows, std::size_t all, Value* to, std::ptrdiff_t stride) const {
        for (std::size_t row = 0; row < all; ++row, from += width_, to += stride) {
            std::size_t unit = 0;
            for (; unit + STEP <= size_; unit += STEP) store_as(to + unit, row < rows ? load(from + unit) : Floats{});
            for (; unit < size_; ++unit) store_as(to + unit, row < rows ? from[unit] : 0.0F);
        }
    }

    // Scores [queries,room] of what a query must not see become minus infinity.
    void hide(float* scores) const {
        for (std::size_t query = 0; query < queries_; ++query, scores += room_) {
            const std::size_t end = causal_ ? std::min(keys_, query + 1) : keys_;
            for (std::size_t key = 0; seen_ != nullptr && key < end; ++key)
                if (!seen_[key]) scores[key] = NONE;
            std::fill(scores + end, scores + room_, NONE);
        }
    }

 private:
    std::size_t queries_, size_, width_;
    bool causal_;
    const bool* seen_;
    std::size_t keys_, room_ = 0;
    float scale_;
};

// Scores [room] to their exponentials relative to the highest. Returns the logarithm of the sum of e^score, and the sum.
struct Softened {
    float normaliser, sum;
};
Softened soften(float* scores, std::size_t room) {
    Floats highest = all(NONE), sums{};
    for (std::size_t place = 0; place < room; place += STEP) highest = larger(load(scores + place), highest);
    const float top = highest_of(highest), shift = top == NONE ? 0.0F : top;
    for (std::size_t place = 0; place < room; place += STEP) {
        const Floats weight = exp_of(load(scores + place) - shift);
        store(scores + place, weight);
        sums += weight;
    }
    const float sum = sum_of(sums);
    return {shift + std::log(sum), sum};
}

struct Space {
    Buffer queries, keys, values, upstream, turned, weights, shares, found;
};

template <typename Body>
void each_head(const AttentionShape& shape, int threads, const Body& body) {
    std::vector<Space> spaces(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(shape.sentences * shape.heads), threads, [&](std::int64_t item, int thread) {
        const auto sentence = static_cast<std::size_t>(item) / shape.heads, head = static_cast<std::size_t>(item) % shape.heads;
        body(sentence, head, Head(shape, sentence), spaces[static_cast<std::size_t>(thread)]);
    });
}

// Queries / sqrt(d), and their scores for all keys, `space.keys` being read.
template <typename Value>
void score(const AttentionShape& shape, const Head& head, const Value* queries, std::ptrdiff_t stride, Space& space) {
    space.queries.reserve(shape.queries * head.width());
    space.turned.reserve(shape.size * head.room());
    space.weights.reserve(shape.queries * head.room());
    head.read(queries, stride, shape.queries, head.scale(), space.queries.data());
    head.turn(space.keys.data(), space.turned.data());
    multiply({space.queries.data(), head.width(), 1, space.turned.data(), head.room(), space.weights.data(), head.room(), shape.size},
             shape.queries, head.room());
    head.hide(space.weights.data());
}

}  // namespace

template <typename Value>
void fused_attention(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                     const HeadRows<const Value>& values, const HeadRows<Value>& mixed, float* normalisers, int threads) {
    each_head(shape, threads, [&](std::size_t sentence, std::size_t number, const Head& head, Space& space) {
        const std::size_t width = head.width(), room = head.room();
        space.keys.reserve(head.keys() * width), space.found.reserve(shape.queries * width);
        head.read(keys.at(sentence, number), keys.row_stride, head.keys(), 1.0F, space.keys.data());
        score(shape, head, queries.at(sentence, number), queries.row_stride, space);
        float* const normaliser = normalisers + (sentence * shape.heads + number) * shape.queries;
        for (std::size_t query = 0; query < shape.queries; ++query) {
            float* const weights = space.weights.data() + query * room;
            const auto [logarithm, sum] = soften(weights, room);
            normaliser[query] = logarithm;
            const float factor = sum == 0.0F ? 0.0F : 1.0F / sum;
            for (std::size_t place = 0; place < room; place += STEP) store(weights + place, load(weights + place) * factor);
        }
        head.read(values.at(sentence, number), values.row_stride, head.keys(), 1.0F, space.keys.data());
        multiply({space.weights.data(), room, 1, space.keys.data(), width, space.found.data(), width, head.keys()}, shape.queries, width);
        head.write(space.found.data(), shape.queries, shape.queries, mixed.at(sentence, number), mixed.row_stride);
    });
}

template <typename Value>
void fused_attention_gradients(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                               const HeadRows<const Value>& values, const float* normalisers, const HeadRows<const Value>& upstream,
                               const AttentionGradients<Value>& gradients, int threads) {
    each_head(shape, threads, [&](std::size_t sentence, std::size_t number, const Head& head, Space& space) {
        const std::size_t width = head.width(), room = head.room(), count = shape.queries;
        space.keys.reserve(head.keys() * width), space.values.reserve(head.keys() * width), space.upstream.reserve(count * width);
        space.shares.reserve(count * room), space.found.reserve(std::max(count, head.keys()) * width);
        head.read(keys.at(sentence, number), keys.row_stride, head.keys(), 1.0F, space.keys.data());
        head.read(values.at(sentence, number), values.row_stride, head.keys(), 1.0F, space.values.data());
        head.read(upstream.at(sentence, number), upstream.row_stride, count, 1.0F, space.upstream.data());
        score(shape, head, queries.at(sentence, number), queries.row_stride, space);
        head.turn(space.values.data(), space.turned.data());
        float *const weights = space.weights.data(), *const shares = space.shares.data(), *const found = space.found.data();
        multiply({space.upstream.data(), width, 1, space.turned.data(), room, shares, room, shape.size}, count, room);
        const float* const normaliser = normalisers + (sentence * shape.heads + number) * count;
        for (std::size_t query = 0; query < count; ++query) {
            float *const weight = weights + query * room, *const share = shares + query * room;
            const float shift = normaliser[query] == NONE ? 0.0F : normaliser[query];
            Floats sums{};
            for (std::size_t place = 0; place < room; place += STEP) {
                const Floats here = exp_of(load(weight + place) - shift);
                store(weight + place, here);
                sums = fused(here, load(share + place), sums);
            }
            const float sum = sum_of(sums);
            for (std::size_t place = 0; place < room; place += STEP)
                store(share + place, load(weight + place) * (load(share + place) - sum));
        }
        const auto write = [&](const HeadRows<Value>& to, std::size_t rows, std::size_t all) {
            head.write(found, rows, all, to.at(sentence, number), to.row_stride);
        };
        multiply({weights, 1, room, space.upstream.data(), width, found, width, count}, head.keys(), width);
        write(gradients.values, head.keys(), shape.keys);
        multiply({shares, 1, room, space.queries.data(), width, found, width, count}, head.keys(), width);
        write(gradients.keys, head.keys(), shape.keys);
        multiply({shares, room, 1, space.keys.data(), width, found, width, head.keys()}, count, width);
        for (std::size_t place = 0; place < count * width; place += STEP) store(found + place, load(found + place) * head.scale());
        write(gradients.queries, count, count);
    });
}

template void fused_attention(const AttentionShape&, const HeadRows<const float>&, const HeadRows<const float>&,
                              const HeadRows<const float>&, const HeadRows<float>&, float*, int);
template void fused_attention(const AttentionShape&, const HeadRows<const std::uint16_t>&, const HeadRows<const std::uint16_t>&,
                              const HeadRows<const std::uint16_t>&, const HeadRows<std::uint16_t>&, float*, int);
template void fused_attention_gradients(const AttentionShape&, const HeadRows<const float>&, const HeadRows<const float>&,
                                        const HeadRows<const float>&, const float*, const HeadRows<const float>&,
                                        const AttentionGradients<float>&, int);
template void fused_attention_gradients(const AttentionShape&, const HeadRows<const std::uint16_t>&,
                                        const HeadRows<const std::uint16_t>&, const HeadRows<const std::uint16_t>&, const float*,
                                        const HeadRows<const std::uint16_t>&, const AttentionGradients<std::uint16_t>&, int);

}  // namespace fewstep
