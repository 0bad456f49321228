#include "csrc/inference/network/layer_norm.h"

#include <cmath>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = F32_LANES, NUM_CHAINS = 4;  // independent partial sums
constexpr float EPSILON = 1e-5F;

// sum_i term(x_i), for vectors or scalars
template <typename Term>
float sum_of_terms(const float* x, std::size_t width, const Term& term) {
    F32Vector sums[NUM_CHAINS] = {};
    std::size_t unit = 0;
    for (; unit + NUM_CHAINS * STEP <= width; unit += NUM_CHAINS * STEP)
        for (std::size_t chain = 0; chain < NUM_CHAINS; ++chain) sums[chain] = term(load(x + unit + chain * STEP), sums[chain]);
    for (; unit + STEP <= width; unit += STEP) sums[0] = term(load(x + unit), sums[0]);
    float sum = horizontal_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; unit < width; ++unit) sum = term(x[unit], sum);
    return sum;
}

}  // namespace

Moments moments(const float* x, std::size_t width) {
    const auto count = static_cast<float>(width);
    const float mean = sum_of_terms(x, width, [](auto value, auto sum) { return sum + value; }) / count;
    const float squares =
        sum_of_terms(x, width, [mean](auto value, auto sum) { return multiply_add(value - mean, value - mean, sum); });
    return {mean, 1.0F / std::sqrt(squares / count + EPSILON)};
}

void LayerNorm::apply(const float* x, std::size_t rows, float* y) const {
    const std::size_t width = scale_.size();
    for (std::size_t row = 0; row < rows; ++row, x += width, y += width) {
        const auto [mean, inverse_deviation] = moments(x, width);
        std::size_t unit = 0;
        for (; unit + STEP <= width; unit += STEP)
            store(y + unit, multiply_add((load(x + unit) - mean) * inverse_deviation, load(scale_.data() + unit),
                                         load(shift_.data() + unit)));
        for (; unit < width; ++unit) y[unit] = multiply_add((x[unit] - mean) * inverse_deviation, scale_[unit], shift_[unit]);
    }
}

}  // namespace fewstep
