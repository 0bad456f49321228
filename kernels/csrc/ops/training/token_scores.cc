#include "csrc/ops/training/token_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/bfloat16.h"
#include "csrc/base/buffer.h"
#include "csrc/base/parallel.h"
#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = F32_LANES, BLOCK = 4 * STEP;
constexpr std::size_t ROWS_PER_BLOCK = 64;  // rows that a thread takes at a time

// A row as floats, padded to whole blocks with minus infinity.
class Row {
  public:
    explicit Row(std::size_t size) : size_(size), padded_((size + BLOCK - 1) / BLOCK * BLOCK), x_(padded_) {
        std::fill(x_.data() + size, x_.data() + padded_, MINUS_INFINITY);
    }

    // Read a row and return its maximum.
    template <typename Logit>
    float read(const Logit* logits) {
        float* x = x_.data();
        F32Vector highest = broadcast(MINUS_INFINITY);
        std::size_t position = 0;
        for (; position + STEP <= size_; position += STEP) {
            const F32Vector values = load(logits + position);
            store(x + position, values);
            highest = vector_max(highest, values);
        }
        float top = horizontal_max(highest);
        for (; position < size_; ++position) x[position] = to_float(logits[position]), top = std::max(top, x[position]);
        return top;
    }

    template <typename Logit>
    void write(Logit* logits) const {
        std::size_t position = 0;
        for (; position + STEP <= size_; position += STEP) store_rounded(logits + position, load(x_.data() + position));
        for (; position < size_; ++position) store_rounded(logits + position, x_.data()[position]);
    }

    // log sum_v e^x_v
    float normaliser(float top) const {
        F32Vector even{}, odd{};
        for (std::size_t position = 0; position < padded_; position += 2 * STEP) {
            even += vector_exp(load(x_.data() + position) - top);
            odd += vector_exp(load(x_.data() + position + STEP) - top);
        }
        return top + std::log(horizontal_sum(even + odd));
    }

    float mean() const {
        F32Vector sums{};
        std::size_t position = 0;
        for (; position + STEP <= size_; position += STEP) sums += load(x_.data() + position);
        float sum = horizontal_sum(sums);
        for (; position < size_; ++position) sum += x_.data()[position];
        return sum / static_cast<float>(size_);
    }

    // Return the first index of `top`, or 0 if no element equals it (NaN).
    std::int64_t find(float top) const {
        const float* x = x_.data();
        std::size_t position = 0;
        for (; position < padded_; position += BLOCK) {
            const F32Vector one = vector_max(load(x + position), load(x + position + STEP));
            if (horizontal_max(vector_max(one, vector_max(load(x + position + 2 * STEP), load(x + position + 3 * STEP)))) == top)
                break;
        }
        const float* found = std::find(x + std::min(position, size_), x + size_, top);
        return found == x + size_ ? 0 : found - x;
    }

    // x_v = scale e^(x_v - normaliser) + shift
    void exponentiate(float normaliser, float scale, float shift) {
        for (std::size_t position = 0; position < size_; position += STEP)
            store(x_.data() + position, vector_exp(load(x_.data() + position) - normaliser) * scale + shift);
        std::fill(x_.data() + size_, x_.data() + padded_, MINUS_INFINITY);
    }

    float& operator[](std::int64_t position) { return x_.data()[position]; }

  private:
    std::size_t size_, padded_;
    Buffer x_;
};

// Call body(row, values, sentence, vertex) for all rows.
template <typename Body>
void for_each_row(const TokenRows& batch, int threads, const Body& body) {
    const std::size_t blocks = (batch.count + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
    parallel_for(static_cast<std::int64_t>(blocks), threads, [&](std::int64_t block, int) {
        Row x(batch.vocabulary);
        const std::size_t first = static_cast<std::size_t>(block) * ROWS_PER_BLOCK,
                          end = std::min(batch.count, first + ROWS_PER_BLOCK);
        for (std::size_t row = first; row < end; ++row) {
            const auto position = static_cast<std::size_t>(batch.rows[row]);
            body(row, x, position / batch.vertices, position % batch.vertices);
        }
    });
}

}  // namespace

template <typename Logit>
void token_scores(const TokenRows& batch, const Logit* logits, float* scores, float* normalisers, std::int64_t* best, int threads) {
    const float own = 1.0F - batch.smoothing;
    for_each_row(batch, threads, [&](std::size_t row, Row& x, std::size_t sentence, std::size_t vertex) {
        const float top = x.read(logits + row * batch.vocabulary), normaliser = x.normaliser(top);
        const float rest = batch.smoothing > 0.0F ? batch.smoothing * x.mean() - normaliser : -normaliser;
        const std::int64_t* targets = batch.targets + sentence * batch.tokens;
        float* score = scores + sentence * batch.tokens * batch.vertices + vertex;
        for (std::size_t token = 0; token < batch.tokens; ++token, score += batch.vertices) *score = own * x[targets[token]] + rest;
        normalisers[row] = normaliser;
        if (best != nullptr) best[sentence * batch.vertices + vertex] = x.find(top);
    });
}

template <typename Logit>
void token_gradients(const TokenRows& batch, Logit* logits, const float* normalisers, const float* upstream, float penalty,
                     int threads) {
    const float own = 1.0F - batch.smoothing;
    for_each_row(batch, threads, [&](std::size_t row, Row& x, std::size_t sentence, std::size_t vertex) {
        const std::int64_t* targets = batch.targets + sentence * batch.tokens;
        const float* row_upstream = upstream + sentence * batch.tokens * batch.vertices + vertex;
        float total = 0.0F;
        for (std::size_t token = 0; token < batch.tokens; ++token) total += row_upstream[token * batch.vertices];
        x.read(logits + row * batch.vocabulary);
        const float share = batch.smoothing / static_cast<float>(batch.vocabulary);
        x.exponentiate(normalisers[row], -total * (1.0F + 2.0F * penalty * normalisers[row]), total * share);
        for (std::size_t token = 0; token < batch.tokens; ++token) x[targets[token]] += own * row_upstream[token * batch.vertices];
        x.write(logits + row * batch.vocabulary);
    });
}

template void token_scores(const TokenRows&, const float*, float*, float*, std::int64_t*, int);
template void token_scores(const TokenRows&, const std::uint16_t*, float*, float*, std::int64_t*, int);
template void token_gradients(const TokenRows&, float*, const float*, const float*, float, int);
template void token_gradients(const TokenRows&, std::uint16_t*, const float*, const float*, float, int);

}  // namespace fewstep
