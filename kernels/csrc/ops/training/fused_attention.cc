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
#include "csrc/ops/training/dropout_mask.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = F32_LANES;
constexpr std::size_t MAX_WEIGHTS = std::size_t{1} << 20;  // of a head that are held at a time, unless a query has more
constexpr int VECTORS = SIMD_REGISTERS == 32 ? 3 : 2, ROWS = SIMD_REGISTERS == 32 ? 8 : 4;  // sums that stay in registers

std::size_t up(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

// A [rows,depth] with arbitrary strides, B [depth,columns] and C [rows,columns] with rows of whole vectors. `adds`: to C.
struct Gemm {
    const float* a;
    std::size_t row_stride, depth_stride;
    const float* b;
    std::size_t b_stride;
    float* c;
    std::size_t c_stride, depth;
    bool adds = false;
};

template <int R, int V>
void multiply_block(const Gemm& gemm, std::size_t row, std::size_t column) {
    F32Vector sums[R][V] = {};
    const auto result = [&](int block_row, int vector) {
        return gemm.c + (row + static_cast<std::size_t>(block_row)) * gemm.c_stride + column +
               static_cast<std::size_t>(vector) * STEP;
    };
    for (int block_row = 0; gemm.adds && block_row < R; ++block_row)
        for (int vector = 0; vector < V; ++vector) sums[block_row][vector] = load(result(block_row, vector));
    const float *a = gemm.a + row * gemm.row_stride, *b = gemm.b + column;
    for (std::size_t position = 0; position < gemm.depth; ++position, a += gemm.depth_stride, b += gemm.b_stride) {
        F32Vector vectors[V];
#pragma GCC unroll 3
        for (int vector = 0; vector < V; ++vector) vectors[vector] = in_register(load(b + vector * F32_LANES));
#pragma GCC unroll 8
        for (int block_row = 0; block_row < R; ++block_row) {
            const float factor = a[static_cast<std::size_t>(block_row) * gemm.row_stride];
#pragma GCC unroll 3
            for (int vector = 0; vector < V; ++vector)
                sums[block_row][vector] = multiply_add(broadcast(factor), vectors[vector], sums[block_row][vector]);
        }
    }
    for (int block_row = 0; block_row < R; ++block_row)
        for (int vector = 0; vector < V; ++vector) store(result(block_row, vector), sums[block_row][vector]);
}

using Multiply = void (*)(const Gemm&, std::size_t, std::size_t);

template <int V, int... R>
constexpr std::array<Multiply, ROWS> by_rows(std::integer_sequence<int, R...>) {
    return {multiply_block<R + 1, V>...};
}

template <int... V>
constexpr std::array<std::array<Multiply, ROWS>, VECTORS> by_vectors(std::integer_sequence<int, V...>) {
    return {by_rows<V + 1>(std::make_integer_sequence<int, ROWS>())...};
}

constexpr auto MULTIPLY = by_vectors(std::make_integer_sequence<int, VECTORS>());

// C = A B, or C += A B
void multiply(const Gemm& gemm, std::size_t rows, std::size_t columns) {
    constexpr std::size_t block_columns = static_cast<std::size_t>(VECTORS) * STEP;
    const std::size_t blocks = (rows + ROWS - 1) / ROWS;
    for (std::size_t column = 0; column < columns; column += block_columns) {
        const std::size_t vectors = std::min(block_columns, columns - column) / STEP;
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::size_t row = rows * block / blocks, count = rows * (block + 1) / blocks - row;
            MULTIPLY[vectors - 1][count - 1](gemm, row, column);
        }
    }
}

// One head of one sentence. Rows of d floats are padded with zeros to whole vectors.
class Head {
  public:
    Head(const AttentionShape& shape, std::size_t sentence, std::size_t number)
        : first_row_((sentence * shape.heads + number) * shape.queries),
          dropout_(shape.dropout),
          queries_(shape.queries),
          size_(shape.size),
          width_(up(shape.size)),
          causal_(shape.causal),
          visible_(shape.visible == nullptr ? nullptr : shape.visible + sentence * shape.keys),
          keys_(shape.keys),
          scale_(1.0F / std::sqrt(static_cast<float>(shape.size))) {
        while (visible_ != nullptr && keys_ > 0 && !visible_[keys_ - 1]) --keys_;
        padded_keys_ = up(keys_);
    }

    std::size_t keys() const { return keys_; }  // up to the last visible one
    std::size_t width() const { return width_; }
    std::size_t padded_keys() const { return padded_keys_; }
    float scale() const { return scale_; }

    // Read rows as floats [rows,width], times a factor.
    template <typename Value>
    void read(const Value* from, std::ptrdiff_t stride, std::size_t rows, float factor, float* to) const {
        for (std::size_t row = 0; row < rows; ++row, from += stride, to += width_) {
            std::size_t unit = 0;
            for (; unit + STEP <= size_; unit += STEP) store(to + unit, load(from + unit) * factor);
            for (; unit < size_; ++unit) to[unit] = to_float(from[unit]) * factor;
            for (; unit < width_; ++unit) to[unit] = 0.0F;
        }
    }

    // Transpose rows [keys,width] to [size,padded_keys], in blocks of F32_LANES keys and units.
    void transpose(const float* rows, float* to) const {
        for (std::size_t key = 0; key < padded_keys_; key += STEP)
            for (std::size_t unit = 0; unit < size_; unit += STEP) {
                F32Vector block[STEP];
                for (std::size_t lane = 0; lane < STEP; ++lane)
                    block[lane] = key + lane < keys_ ? load(rows + (key + lane) * width_ + unit) : F32Vector{};
                fewstep::transpose(block);
                const std::size_t units = std::min(STEP, size_ - unit);
                for (std::size_t lane = 0; lane < units; ++lane) store(to + (unit + lane) * padded_keys_ + key, block[lane]);
            }
    }

    template <typename Value>
    void write(const float* from, std::size_t rows, std::size_t all, Value* to, std::ptrdiff_t stride) const {
        for (std::size_t row = 0; row < all; ++row, from += width_, to += stride) {
            std::size_t unit = 0;
            for (; unit + STEP <= size_; unit += STEP) store_rounded(to + unit, row < rows ? load(from + unit) : F32Vector{});
            for (; unit < size_; ++unit) store_rounded(to + unit, row < rows ? from[unit] : 0.0F);
        }
    }

    // The number of queries whose weights are held at a time.
    std::size_t queries_at_a_time() const {
        return std::max<std::size_t>(1, std::min(queries_, MAX_WEIGHTS / std::max<std::size_t>(1, padded_keys_)));
    }

    // Set the scores [queries,padded_keys] of keys that the queries [first, last) must not see to minus infinity.
    void apply_mask(float* scores, std::size_t first, std::size_t last) const {
        for (std::size_t query = first; query < last; ++query, scores += padded_keys_) {
            const std::size_t end = causal_ ? std::min(keys_, query + 1) : keys_;
            for (std::size_t key = 0; visible_ != nullptr && key < end; ++key)
                if (!visible_[key]) scores[key] = MINUS_INFINITY;
            std::fill(scores + end, scores + padded_keys_, MINUS_INFINITY);
        }
    }

    DropoutMask mask(std::size_t query) const { return {dropout_, first_row_ + query}; }

  private:
    std::size_t first_row_;
    Dropout dropout_;
    std::size_t queries_, size_, width_;
    bool causal_;
    const bool* visible_;
    std::size_t keys_, padded_keys_ = 0;
    float scale_;
};

// Replace scores [padded_keys] by exp(score - maximum). Return the log of the sum of e^score, and the sum.
struct ExpSum {
    float normaliser, sum;
};
ExpSum exponentiate(float* scores, std::size_t padded_keys) {
    F32Vector highest = broadcast(MINUS_INFINITY), sums{};
    for (std::size_t position = 0; position < padded_keys; position += STEP) highest = vector_max(load(scores + position), highest);
    const float top = horizontal_max(highest), shift = top == MINUS_INFINITY ? 0.0F : top;
    for (std::size_t position = 0; position < padded_keys; position += STEP) {
        const F32Vector weight = vector_exp(load(scores + position) - shift);
        store(scores + position, weight);
        sums += weight;
    }
    const float sum = horizontal_sum(sums);
    return {shift + std::log(sum), sum};
}

struct Workspace {
    Buffer queries, keys, values, upstream, transposed, transposed_values, weights, kept, products, output, of_keys, of_values;
};

template <typename Body>
void for_each_head(const AttentionShape& shape, int threads, const Body& body) {
    std::vector<Workspace> workspaces(static_cast<std::size_t>(threads));
    parallel_for(static_cast<std::int64_t>(shape.sentences * shape.heads), threads, [&](std::int64_t item, int thread) {
        const auto sentence = static_cast<std::size_t>(item) / shape.heads, head = static_cast<std::size_t>(item) % shape.heads;
        body(sentence, head, Head(shape, sentence, head), workspaces[static_cast<std::size_t>(thread)]);
    });
}

// Queries [first, last) whose weights are held together.
struct Part {
    std::size_t first, last;

    std::size_t count() const { return last - first; }
    template <typename Value>
    Value* of(const HeadRows<Value>& rows, std::size_t sentence, std::size_t head) const {
        return rows.at(sentence, head) + static_cast<std::ptrdiff_t>(first) * rows.row_stride;
    }
};

template <typename Body>
void for_each_part(const AttentionShape& shape, const Head& head, const Body& body) {
    const std::size_t count = head.queries_at_a_time();
    for (std::size_t first = 0; first < shape.queries; first += count) body(Part{first, std::min(first + count, shape.queries)});
}

// Read the keys and values of a head, and transpose the keys.
template <typename Value>
void read_keys(const AttentionShape& shape, const Head& head, const HeadRows<const Value>& keys,
               const HeadRows<const Value>& values, std::size_t sentence, std::size_t number, Workspace& workspace) {
    workspace.keys.reserve(head.keys() * head.width()), workspace.values.reserve(head.keys() * head.width());
    workspace.transposed.reserve(shape.size * head.padded_keys());
    head.read(keys.at(sentence, number), keys.row_stride, head.keys(), 1.0F, workspace.keys.data());
    head.read(values.at(sentence, number), values.row_stride, head.keys(), 1.0F, workspace.values.data());
    head.transpose(workspace.keys.data(), workspace.transposed.data());
}

// Read queries / sqrt(d) and compute their scores for all keys.
template <typename Value>
void score(const AttentionShape& shape, const Head& head, const Part& part, const Value* queries, std::ptrdiff_t stride,
           Workspace& workspace) {
    workspace.queries.reserve(part.count() * head.width()), workspace.output.reserve(part.count() * head.width());
    workspace.weights.reserve(part.count() * head.padded_keys());
    head.read(queries, stride, part.count(), head.scale(), workspace.queries.data());
    multiply({workspace.queries.data(), head.width(), 1, workspace.transposed.data(), head.padded_keys(), workspace.weights.data(),
              head.padded_keys(), shape.size},
             part.count(), head.padded_keys());
    head.apply_mask(workspace.weights.data(), part.first, part.last);
}

// Compute the gradients of the queries of a part, in `workspace.output`, and add those of keys and values.
void add_gradients(const AttentionShape& shape, const Head& head, const Part& part, const float* normaliser, Workspace& workspace) {
    const std::size_t width = head.width(), padded_keys = head.padded_keys(), count = part.count();
    float *const weights = workspace.weights.data(), *const products = workspace.products.data(),
                 *const kept = workspace.kept.data(), *const output = workspace.output.data();
    multiply(
        {workspace.upstream.data(), width, 1, workspace.transposed_values.data(), padded_keys, products, padded_keys, shape.size},
        count, padded_keys);
    for (std::size_t query = 0; query < count; ++query) {
        float *const weight = weights + query * padded_keys, *const product = products + query * padded_keys,
                     *const dropped = kept + query * padded_keys;
        const float shift = normaliser[query] == MINUS_INFINITY ? 0.0F : normaliser[query];
        const DropoutMask mask = head.mask(part.first + query);
        F32Vector sums{};
        for (std::size_t position = 0; position < padded_keys; position += STEP) {
            const F32Vector here = vector_exp(load(weight + position) - shift), factors = mask.factors(position),
                            masked = load(product + position) * factors;
            store(weight + position, here), store(dropped + position, here * factors), store(product + position, masked);
            sums = multiply_add(here, masked, sums);
        }
        const float sum = horizontal_sum(sums);
        for (std::size_t position = 0; position < padded_keys; position += STEP)
            store(product + position, load(weight + position) * (load(product + position) - sum));
    }
    const bool adds = part.first > 0;
    multiply({kept, 1, padded_keys, workspace.upstream.data(), width, workspace.of_values.data(), width, count, adds}, head.keys(),
             width);
    multiply({products, 1, padded_keys, workspace.queries.data(), width, workspace.of_keys.data(), width, count, adds}, head.keys(),
             width);
    multiply({products, padded_keys, 1, workspace.keys.data(), width, output, width, head.keys()}, count, width);
    for (std::size_t position = 0; position < count * width; position += STEP)
        store(output + position, load(output + position) * head.scale());
}

}  // namespace

template <typename Value>
void fused_attention(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                     const HeadRows<const Value>& values, const HeadRows<Value>& output_rows, float* normalisers, int threads) {
    for_each_head(shape, threads, [&](std::size_t sentence, std::size_t number, const Head& head, Workspace& workspace) {
        const std::size_t width = head.width(), padded_keys = head.padded_keys();
        read_keys(shape, head, keys, values, sentence, number, workspace);
        for_each_part(shape, head, [&](const Part& part) {
            score(shape, head, part, part.of(queries, sentence, number), queries.row_stride, workspace);
            float* const normaliser = normalisers + (sentence * shape.heads + number) * shape.queries + part.first;
            for (std::size_t query = 0; query < part.count(); ++query) {
                float* const weights = workspace.weights.data() + query * padded_keys;
                const auto [logarithm, sum] = exponentiate(weights, padded_keys);
                normaliser[query] = logarithm;
                const float factor = sum == 0.0F ? 0.0F : 1.0F / sum;
                const DropoutMask mask = head.mask(part.first + query);
                for (std::size_t position = 0; position < padded_keys; position += STEP)
                    store(weights + position, load(weights + position) * factor * mask.factors(position));
            }
            multiply({workspace.weights.data(), padded_keys, 1, workspace.values.data(), width, workspace.output.data(), width,
                      head.keys()},
                     part.count(), width);
            head.write(workspace.output.data(), part.count(), part.count(), part.of(output_rows, sentence, number),
                       output_rows.row_stride);
        });
    });
}

template <typename Value>
void fused_attention_gradients(const AttentionShape& shape, const HeadRows<const Value>& queries, const HeadRows<const Value>& keys,
                               const HeadRows<const Value>& values, const float* normalisers, const HeadRows<const Value>& upstream,
                               const AttentionGradients<Value>& gradients, int threads) {
    for_each_head(shape, threads, [&](std::size_t sentence, std::size_t number, const Head& head, Workspace& workspace) {
        const std::size_t width = head.width();
        workspace.of_keys.reserve(head.keys() * width), workspace.of_values.reserve(head.keys() * width);
        workspace.transposed_values.reserve(shape.size * head.padded_keys());
        read_keys(shape, head, keys, values, sentence, number, workspace);
        head.transpose(workspace.values.data(), workspace.transposed_values.data());
        for_each_part(shape, head, [&](const Part& part) {
            score(shape, head, part, part.of(queries, sentence, number), queries.row_stride, workspace);
            workspace.upstream.reserve(part.count() * width), workspace.products.reserve(part.count() * head.padded_keys()),
                workspace.kept.reserve(part.count() * head.padded_keys());
            head.read(part.of(upstream, sentence, number), upstream.row_stride, part.count(), 1.0F, workspace.upstream.data());
            const float* const normaliser = normalisers + (sentence * shape.heads + number) * shape.queries + part.first;
            add_gradients(shape, head, part, normaliser, workspace);
            head.write(workspace.output.data(), part.count(), part.count(), part.of(gradients.queries, sentence, number),
                       gradients.queries.row_stride);
        });
        const std::size_t rows = shape.queries > 0 ? head.keys() : 0;
        const auto write = [&](const Buffer& sums, const HeadRows<Value>& to) {
            head.write(sums.data(), rows, shape.keys, to.at(sentence, number), to.row_stride);
        };
        write(workspace.of_keys, gradients.keys);
        write(workspace.of_values, gradients.values);
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
