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

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES, BLOCK = 4 * STEP;
constexpr std::size_t TOGETHER = 64;  // rows that a thread takes at a time

// A row as floats, filled up to whole blocks with minus infinity.
class Row {
 public:
    explicit Row(std::size_t size) : size_(size), room_((size + BLOCK - 1) / BLOCK * BLOCK), x_(room_) {
        std::fill(x_.data() + size, x_.data() + room_, NONE);
    }

    // Returns the highest.
    template <typename Logit>
    float read(const Logit* logits) {
        float* x = x_.data();
        Floats highest = all(NONE);
        std::size_t place = 0;
        for (; place + STEP <= size_; place += STEP) {
            const Floats values = load(logits + place);
            store(x + place, values);
            highest = larger(highest, values);
        }
        float top = highest_of(highest);
        for (; place < size_; ++place) x[place] = widened(logits[place]), top = std::max(top, x[place]);
        return top;
    }

    template <typename Logit>
    void write(Logit* logits) const {
        std::size_t place = 0;
        for (; place + STEP <= size_; place += STEP) store_as(logits + place, load(x_.data() + place));
        for (; place < size_; ++place) store_as(logits + place, x_.data()[place]);
    }

    // log sum_v e^x_v
    float normaliser(float top) const {
        Floats even{}, odd{};
        for (std::size_t place = 0; place < room_; place += 2 * STEP) {
            even += exp_of(load(x_.data() + place) - top);
            odd += exp_of(load(x_.data() + place + STEP) - top);
        }
        return top + std::log(sum_of(even + odd));
    }

    float mean() const {
        Floats sums{};
        std::size_t place = 0;
        for (; place + STEP <= size_; place += STEP) sums += load(x_.data() + place);
        float sum = sum_of(sums);
        for (; place < size_; ++place) sum += x_.data()[place];
        return sum / static_cast<float>(size_);
    }

    // The first place of `top`; 0 where there is none (of NaNs).
    std::int64_t find(float top) const {
        const float* x = x_.data();
        std::size_t place = 0;
        for (; place < room_; place += BLOCK) {
            const Floats one = larger(load(x + place), load(x + place + STEP));
            if (highest_of(larger(one, larger(load(x + place + 2 * STEP), load(x + place + 3 * STEP)))) == top) break;
        }
        const float* found = std::find(x + std::min(place, size_), x + size_, top);
        return found == x + size_ ? 0 : found - x;
    }

    // x_v = scale e^(x_v - normaliser) + shift
    void exponentiate(float normaliser, float scale, float shift) {
        for (std::size_t place = 0; place < size_; place += STEP)
            store(x_.data() + place, exp_of(load(x_.data() + place) - normaliser) * scale + shift);
        std::fill(x_.data() + size_, x_.data() + room_, NONE);
    }

    float& operator[](std::int64_t place) { return x_.data()[place]; }

 private:
    std::size_t size_, room_;
    Buffer x_;
};

// Calls body(number of the row, its floats, its sentence, its vertex) for all rows.
template <typename Body>
void for_each_row(const TokenRows& batch, int threads, const Body& body) {
    const std::size_t blocks = (batch.count + TOGETHER - 1) / TOGETHER;
    parallel_for(static_cast<std::int64_t>(blocks), threads, [&](std::int64_t block, int) {
        Row x(batch.vocabulary);
        const std::size_t first = static_cast<std::size_t>(block) * TOGETHER, end = std::min(batch.count, first + TOGETHER);
        for (std::size_t row = first; row < end; ++row) {
            const auto place = static_cast<std::size_t>(batch.rows[row]);
            body(row, x, place / batch.vertices, place % batch.vertices);
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
void token_gradients(const TokenRows& batch, Logit* logits, const float* normalisers, const float* upstream, float penalty, int threads) {
    const float own = 1.0F - batch.smoothing;
    for_each_row(batch, threads, [&](std::size_t row, Row& x, std::size_t sentence, std::size_t vertex) {
        const std::int64_t* targets = batch.targets + sentence * batch.tokens;
        const float* given = upstream + sentence * batch.tokens * batch.vertices + vertex;
        float total = 0.0F;
        for (std::size_t token = 0; token < batch.tokens; ++token) total += given[token * batch.vertices];
        x.read(logits + row * batch.vocabulary);
        const float share = batch.smoothing / static_cast<float>(batch.vocabulary);
        x.exponentiate(normalisers[row], -total * (1.0F + 2.0F * penalty * normalisers[row]), total * share);
        for (std::size_t token = 0; token < batch.tokens; ++token) x[targets[token]] += own * given[token * batch.vertices];
        x.write(logits + row * batch.vocabulary);
    });
}

template void token_scores(const TokenRows&, const float*, float*, float*, std::int64_t*, int);
template void token_scores(const TokenRows&, const std::uint16_t*, float*, float*, std::int64_t*, int);
template void token_gradients(const TokenRows&, float*, const float*, const float*, float, int);
template void token_gradients(const TokenRows&, std::uint16_t*, const float*, const float*, float, int);

}  // namespace fewstep
