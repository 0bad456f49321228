#include "csrc/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/vectors.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES;

// e^((x - highest) scale) in place of scores x [room], minus infinity beyond the last; returns one over the sum.
float exponentials(float* scores, std::size_t room, float scale) {
    Floats highest = load(scores);
    for (std::size_t place = STEP; place < room; place += STEP) highest = larger(highest, load(scores + place));
    const Floats top = all(highest_of(highest));
    Floats sum{};
    for (std::size_t place = 0; place < room; place += STEP) {
        const Floats weight = exp_of((load(scores + place) - top) * scale);
        store(scores + place, weight);
        sum += weight;
    }
    return 1.0F / sum_of(sum);
}

float dot(const float* one, const float* other, std::size_t size) {
    Floats sums{};
    std::size_t place = 0;
    for (; place + STEP <= size; place += STEP) sums += load(one + place) * load(other + place);
    float sum = sum_of(sums);
    for (; place < size; ++place) sum += one[place] * other[place];
    return sum;
}

// sum_s weights[s] values(s) for one head, times `factor`; values(s) is the start of the head's values at s.
template <typename Values>
void mix(const float* weights, std::size_t length, std::size_t size, float factor, const Values& values, float* mixed) {
    std::size_t place = 0;
    for (; place + 2 * STEP <= size; place += 2 * STEP) {
        Floats low{}, high{};
        for (std::size_t s = 0; s < length; ++s) {
            const float* at = values(s) + place;
            low += weights[s] * load(at);
            high += weights[s] * load(at + STEP);
        }
        store(mixed + place, low * factor);
        store(mixed + place + STEP, high * factor);
    }
    for (; place + STEP <= size; place += STEP) {
        Floats sum{};
        for (std::size_t s = 0; s < length; ++s) sum += weights[s] * load(values(s) + place);
        store(mixed + place, sum * factor);
    }
    for (; place < size; ++place) {
        float sum = 0.0F;
        for (std::size_t s = 0; s < length; ++s) sum += weights[s] * values(s)[place];
        mixed[place] = sum * factor;
    }
}

float scale_of(const Heads& heads) { return 1.0F / std::sqrt(static_cast<float>(heads.size)); }

}  // namespace

std::size_t room_for(std::size_t length) { return (length + STEP - 1) / STEP * STEP; }

void lay_out(const float* rows, std::size_t stride, std::size_t length, std::size_t width, float* keys, float* values) {
    const std::size_t room = room_for(length);
    for (std::size_t unit = 0; unit < width; ++unit) {
        for (std::size_t s = 0; s < length; ++s) keys[unit * room + s] = rows[s * stride + unit];
        std::fill(keys + unit * room + length, keys + (unit + 1) * room, 0.0F);
    }
    for (std::size_t s = 0; s < length; ++s) std::copy_n(rows + s * stride + width, width, values + s * width);
}

void Attention::attend(const float* queries, std::size_t stride, std::size_t rows, const Sequence& sequence, float* mixed) {
    const auto [count, size] = heads_;
    const std::size_t room = sequence.room, width = heads_.width();
    weights_.reserve(room);
    float* weights = weights_.data();
    for (std::size_t head = 0; head < count; ++head) {
        const float* keys = sequence.keys + head * size * room;
        const float* values = sequence.values + head * size;
        for (std::size_t row = 0; row < rows; ++row) {
            const float* query = queries + row * stride + head * size;
            for (std::size_t place = 0; place < room; place += STEP) {
                Floats even{}, odd{};
                std::size_t unit = 0;
                for (; unit + 2 <= size; unit += 2) {
                    even += query[unit] * load(keys + unit * room + place);
                    odd += query[unit + 1] * load(keys + (unit + 1) * room + place);
                }
                if (unit < size) even += query[unit] * load(keys + unit * room + place);
                store(weights + place, even + odd);
            }
            std::fill(weights + sequence.length, weights + room, NONE);
            const float factor = exponentials(weights, room, scale_of(heads_));
            mix(weights, sequence.length, size, factor, [=](std::size_t s) { return values + s * width; },
                mixed + row * width + head * size);
        }
    }
}

void Attention::attend(const float* query, const std::vector<const float*>& slots, const std::vector<char>& seen, float* mixed) {
    const auto [count, size] = heads_;
    const std::size_t room = room_for(slots.size()), width = heads_.width();
    weights_.reserve(count * room);
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
        for (std::size_t head = 0; head < count; ++head) {
            const bool hidden = !seen.empty() && seen[slot] == 0;
            weights_.data()[head * room + slot] = hidden ? NONE : dot(query + head * size, slots[slot] + head * size, size);
        }
    for (std::size_t head = 0; head < count; ++head) {
        float* weights = weights_.data() + head * room;
        std::fill(weights + slots.size(), weights + room, NONE);
        const float factor = exponentials(weights, room, scale_of(heads_));
        mix(weights, slots.size(), size, factor, [&, head](std::size_t s) { return slots[s] + width + head * size; },
            mixed + head * size);
    }
}

}  // namespace fewstep
