#include "csrc/inference/network/layer_norm.h"

#include <cmath>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = LANES, CHAINS = 4;  // sums side by side, none of which waits for another
constexpr float EPSILON = 1e-5F;

// sum_i term(x_i), of vectors or of single values
template <typename Term>
float sum_over(const float* x, std::size_t width, const Term& term) {
    Floats sums[CHAINS] = {};
    std::size_t unit = 0;
    for (; unit + CHAINS * STEP <= width; unit += CHAINS * STEP)
        for (std::size_t chain = 0; chain < CHAINS; ++chain) sums[chain] = term(load(x + unit + chain * STEP), sums[chain]);
    for (; unit + STEP <= width; unit += STEP) sums[0] = term(load(x + unit), sums[0]);
    float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; unit < width; ++unit) sum = term(x[unit], sum);
    return sum;
}

}  // namespace

Moments moments_of(const float* x, std::size_t width) {
    const auto count = static_cast<float>(width);
    const float mean = sum_over(x, width, [](auto value, auto sum) { return sum + value; }) / count;
    const float squares = sum_over(x, width, [mean](auto value, auto sum) { return fused(value - mean, value - mean, sum); });
    return {mean, 1.0F / std::sqrt(squares / count + EPSILON)};
}

void Norm::apply(const float* x, std::size_t rows, float* y) const {
    const std::size_t width = scale_.size();
    for (std::size_t row = 0; row < rows; ++row, x += width, y += width) {
        const auto [mean, rate] = moments_of(x, width);
        std::size_t unit = 0;
        for (; unit + STEP <= width; unit += STEP)
            store(y + unit, fused((load(x + unit) - mean) * rate, load(scale_.data() + unit), load(shift_.data() + unit)));
        for (; unit < width; ++unit) y[unit] = fused((x[unit] - mean) * rate, scale_[unit], shift_[unit]);
    }
}

}  // namespace fewstep
