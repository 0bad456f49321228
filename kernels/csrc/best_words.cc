#include "csrc/best_words.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/vectors.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES, BLOCK = 8 * STEP;
constexpr std::size_t TOGETHER = 32;  // rows whose logits are held together: few enough for a cache

// sum_i e^(x_i - top)
float sum_of_exponentials(const float* x, std::size_t count, float top) {
    Floats even{}, odd{};
    std::size_t place = 0;
    for (; place + 2 * STEP <= count; place += 2 * STEP) {
        even += exp_of(load(x + place) - top);
        odd += exp_of(load(x + place + STEP) - top);
    }
    if (place == count) return sum_of(even + odd);
    float rest[2 * LANES];
    for (std::size_t lane = 0; lane < 2 * STEP; ++lane) rest[lane] = place + lane < count ? x[place + lane] : NONE;
    return sum_of(even + exp_of(load(rest) - top) + (odd + exp_of(load(rest + STEP) - top)));
}

// The highest of each lane of a block.
Floats highest_in_block(const float* x) {
    Floats one = larger(load(x), load(x + STEP)), other = larger(load(x + 2 * STEP), load(x + 3 * STEP));
    one = larger(one, larger(load(x + 4 * STEP), load(x + 5 * STEP)));
    other = larger(other, larger(load(x + 6 * STEP), load(x + 7 * STEP)));
    return larger(one, other);
}

// The first `wanted` of x, sorted into (scores, ids), which hold minus infinity at first.
void keep_highest(const float* x, std::size_t count, std::size_t wanted, float* scores, std::int64_t* ids) {
    const auto offer = [&](std::size_t place) {
        if (!(x[place] > scores[wanted - 1])) return;
        std::size_t rank = wanted - 1;
        for (; rank > 0 && x[place] > scores[rank - 1]; --rank) scores[rank] = scores[rank - 1], ids[rank] = ids[rank - 1];
        scores[rank] = x[place], ids[rank] = static_cast<std::int64_t>(place);
    };
    std::size_t place = 0;
    for (; place + BLOCK <= count; place += BLOCK) {
        if (!(highest_of(highest_in_block(x + place)) > scores[wanted - 1])) continue;
        for (std::size_t vector = place; vector < place + BLOCK; vector += STEP)
            if (highest_of(load(x + vector)) > scores[wanted - 1])
                for (std::size_t lane = 0; lane < STEP; ++lane) offer(vector + lane);
    }
    for (; place < count; ++place) offer(place);
}

}  // namespace

void best_words(const PackedMatrix& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                std::size_t wanted, bool eos_apart, const WordRules& rules, BestWords& found) {
    const std::size_t words = vocabulary.outputs(), width = vocabulary.inputs();
    Buffer& logits = found.logits;
    logits.reserve(std::min(rows, TOGETHER) * words);
    found.scores.assign(rows * wanted, NONE);
    found.ids.assign(rows * wanted, rules.eos);
    found.eos.resize(rows);
    found.normalisers.resize(rows);
    for (std::size_t start = 0; start < rows; start += TOGETHER) {
        const std::size_t end = std::min(rows, start + TOGETHER);
        vocabulary.multiply(states + start * width, width, end - start, logits.data(), words);
        for (std::size_t row = start; row < end; ++row) {
            float* x = logits.data() + (row - start) * words;
            float* scores = found.scores.data() + row * wanted;
            const bool may_end = static_cast<std::int64_t>(first + row % step_size) >= rules.min_tokens;
            const float eos = x[rules.eos];
            float top = eos;
            std::vector<float> aside;
            for (const std::int64_t word : rules.banned) {
                aside.push_back(x[word]);
                top = std::max(top, x[word]);
                x[word] = NONE;
            }
            if (eos_apart || !may_end) x[rules.eos] = NONE;
            keep_highest(x, words, wanted, scores, found.ids.data() + row * wanted);
            for (std::size_t place = 0; place < aside.size(); ++place) x[rules.banned[place]] = aside[place];
            x[rules.eos] = eos;
            top = std::max(top, scores[0]);
            const float normaliser = top + std::log(sum_of_exponentials(x, words, top));
            for (std::size_t rank = 0; rank < wanted; ++rank) scores[rank] -= normaliser;
            found.normalisers[row] = normaliser;
            found.eos[row] = may_end ? eos - normaliser : NONE;
        }
    }
}

}  // namespace fewstep
