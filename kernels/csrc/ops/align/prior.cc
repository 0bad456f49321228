#include "csrc/ops/align/prior.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/parallel.h"
#include "csrc/ops/align/diagonal.h"

namespace fewstep {

Priors::Priors(const std::vector<SizeCount>& sizes, const AlignOptions& options, double tension, std::size_t cached_values)
    : sizes_(sizes), options_(options), tension_(tension), start_(sizes.size(), -1) {
    std::vector<std::uint32_t> order(sizes.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return sizes[a].count > sizes[b].count; });
    std::size_t used = 0;
    for (const std::uint32_t size : order) {
        const std::size_t values = static_cast<std::size_t>(sizes[size].m) * sizes[size].n;
        if (sizes[size].count < 2 || used + values > cached_values) continue;
        start_[size] = static_cast<std::int64_t>(used);
        used += values;
    }
    cached_.resize(used);
    for (std::size_t size = 0; size < sizes.size(); ++size)
        if (start_[size] >= 0) compute(sizes[size], &cached_[static_cast<std::size_t>(start_[size])]);
}

Prior Priors::of(std::uint32_t size, std::vector<double>& scratch) const {
    const SizeCount& lengths = sizes_[size];
    const double null = options_.diagonal ? options_.p0 : 1.0 / (lengths.n + (options_.null_word ? 1 : 0));
    if (start_[size] >= 0) return {&cached_[static_cast<std::size_t>(start_[size])], null};
    scratch.resize(static_cast<std::size_t>(lengths.m) * lengths.n);
    compute(lengths, scratch.data());
    return {scratch.data(), null};
}

void Priors::compute(const SizeCount& size, double* links) const {
    if (!options_.diagonal) {
        std::fill_n(links, static_cast<std::size_t>(size.m) * size.n, 1.0 / (size.n + (options_.null_word ? 1 : 0)));
        return;
    }
    const double not_null = 1.0 - options_.p0;
    for (std::uint32_t j = 1; j <= size.m; ++j) {
        const double total = diagonal_partition(j, size.m, size.n, tension_) / not_null;
        for (std::uint32_t i = 1; i <= size.n; ++i)
            links[static_cast<std::size_t>(i - 1) * size.m + j - 1] =
                std::exp(diagonal_feature(j, i, size.m, size.n) * tension_) / total;
    }
}

double model_feature(const std::vector<SizeCount>& sizes, std::int64_t target_words, double tension, bool compatible, int threads) {
    std::vector<double> sums(sizes.size());
    parallel_for(static_cast<std::int64_t>(sizes.size()), threads, [&](std::int64_t index, int) {
        const SizeCount& size = sizes[static_cast<std::size_t>(index)];
        double sum = 0;
        for (std::uint32_t j = 1; j <= size.m; ++j)
            sum += static_cast<double>(size.count) * diagonal_gradient(j, size.m, size.n, tension, compatible);
        sums[static_cast<std::size_t>(index)] = sum;
    });
    double total = 0;
    for (const double sum : sums) total += sum;
    return total / static_cast<double>(target_words);
}

double step_tension(double tension, double posterior_feature, double model_feature) {
    tension += (posterior_feature - model_feature) * 20.0;
    return std::min(std::max(tension, 0.1), 14.0);
}

double length_ratio(const std::vector<SizeCount>& sizes) {
    double sum = 0;
    std::int64_t pairs = 0;
    for (const SizeCount& size : sizes) {
        sum += static_cast<double>(size.count) * (static_cast<double>(size.m) / size.n);
        pairs += size.count;
    }
    return pairs ? sum / static_cast<double>(pairs) : 1.0;
}

}  // namespace fewstep
