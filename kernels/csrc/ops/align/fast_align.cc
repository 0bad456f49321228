#include "csrc/ops/align/fast_align.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/parallel.h"
#include "csrc/ops/align/diagonal.h"

namespace fewstep {

namespace {

constexpr double NEAR_TIE = 1e-9;
constexpr std::int64_t PAIRS = 64;                  // pairs that a thread takes at a time
constexpr std::size_t MIN_CACHED_PRIORS = 1 << 18;  // minimum number of cached prior values

std::vector<SizeCount> count_sizes(std::vector<std::uint64_t> keys) {
    std::sort(keys.begin(), keys.end());
    std::vector<SizeCount> sizes;
    for (const std::uint64_t key : keys) {
        const auto m = static_cast<std::uint32_t>(key >> 32), n = static_cast<std::uint32_t>(key);
        if (sizes.empty() || sizes.back().m != m || sizes.back().n != n) sizes.push_back({m, n, 0});
        ++sizes.back().count;
    }
    return sizes;
}

std::uint32_t size_index(const std::vector<SizeCount>& sizes, std::uint32_t m, std::uint32_t n) {
    const auto less = [](const SizeCount& a, const std::pair<std::uint32_t, std::uint32_t>& b) {
        return a.m != b.first ? a.m < b.first : a.n < b.second;
    };
    return static_cast<std::uint32_t>(std::lower_bound(sizes.begin(), sizes.end(), std::pair(m, n), less) - sizes.begin());
}

}  // namespace

void PassSums::add(const PassSums& other) {
    log_likelihood.add(other.log_likelihood);
    null_posterior.add(other.null_posterior);
    feature.add(other.feature);
    near_ties += other.near_ties;
}

// A usable pair and its prior.
struct AlignedText::Pair {
    std::size_t index;  // among the usable pairs
    std::span<const std::uint32_t> source, target;
    Prior prior;
};

struct AlignedText::Scratch {
    std::vector<double> prior, joint, total, best, second;
    PassSums sums;

    // Clamp probabilities that underflow above 0, so that no posterior is 0 / 0.
    void log_likelihood() {
        double sum = 0;
        for (double& value : total) sum += std::log(value = std::max(value, std::numeric_limits<double>::min()));
        pair_score = sum;
        sums.log_likelihood.add(sum);
    }
    double pair_score = 0;
};

AlignedText::AlignedText(const Sentences& source, const Sentences& target, std::uint32_t source_size, std::uint32_t target_size,
                         const AlignOptions& options, bool keep_columns, int threads)
    : options_(options), source_(source), target_(target), usable_(source, target, options.max_length) {
    cells_ = collect_cells(source, target, usable_, source_size, target_size, options.null_word, keep_columns, threads);
    std::vector<std::uint64_t> keys;
    for (const std::int64_t pair : usable_.pairs) {
        keys.push_back(static_cast<std::uint64_t>(target[pair].size()) << 32 | source[pair].size());
        target_words_ += static_cast<std::int64_t>(target[pair].size());
    }
    sizes_ = count_sizes(std::move(keys));
    for (const std::int64_t pair : usable_.pairs)
        size_of_.push_back(
            size_index(sizes_, static_cast<std::uint32_t>(target[pair].size()), static_cast<std::uint32_t>(source[pair].size())));
}

// Call body(pair, cell offsets of the pair, scratch of the thread) for all usable pairs and add up the sums of the threads.
template <typename Body>
PassSums AlignedText::pass(double tension, int threads, const Body& body) const {
    PassSums sums;
    std::visit(
        [&](const auto& blocks) {
            const Priors priors(sizes_, options_, tension, std::max(MIN_CACHED_PRIORS, blocks.size() / 8));
            const auto count = static_cast<std::int64_t>(usable_.pairs.size());
            std::vector<Scratch> scratches(static_cast<std::size_t>(std::max(threads, 1)));
            parallel_for((count + PAIRS - 1) / PAIRS, threads, [&](std::int64_t group, int thread) {
                Scratch& scratch = scratches[static_cast<std::size_t>(thread)];
                for (std::int64_t p = group * PAIRS; p < std::min(count, (group + 1) * PAIRS); ++p) {
                    const auto index = static_cast<std::size_t>(p);
                    const std::int64_t at = usable_.pairs[index];
                    const Pair pair{index, source_[at], target_[at], priors.of(size_of_[index], scratch.prior)};
                    body(pair, &blocks[cells_.offsets.starts[index]], scratch);
                }
            });
            for (const Scratch& scratch : scratches) sums.add(scratch.sums);
        },
        cells_.offsets.blocks);
    return sums;
}

template <typename Offset>
void AlignedText::expect_pair(const Pair& pair, const Offset* offsets, const double* t, ExactCounts& counts, bool shared,
                              Scratch& scratch) const {
    const std::size_t n = pair.source.size(), m = pair.target.size();
    const auto& row_starts = cells_.support.row_starts;
    const auto& null_offsets = cells_.offsets.null;
    scratch.joint.resize(n * m);
    scratch.best.assign(m, 0.0);  // of the null word
    double* total = (scratch.total.assign(m, 0.0), scratch.total.data());
    if (options_.null_word)
        for (std::size_t j = 0; j < m; ++j) total[j] = scratch.best[j] = t[null_offsets[pair.target[j]]] * pair.prior.null;
    for (std::size_t i = 0; i < n; ++i) {
        const double* row = t + row_starts[pair.source[i] + 1];
        const Offset* offset = offsets + i * m;
        const double* prior = pair.prior.links + i * m;
        double* joint = &scratch.joint[i * m];
        for (std::size_t j = 0; j < m; ++j) total[j] += joint[j] = row[offset[j]] * prior[j];
    }
    scratch.log_likelihood();
    const auto add = [&](std::uint64_t cell, double posterior) {
        if (shared)
            counts.add_shared(cell, posterior);
        else
            counts.add(cell, posterior);
    };
    double null_sum = 0, feature_sum = 0;
    if (options_.null_word)
        for (std::size_t j = 0; j < m; ++j) {
            const double posterior = scratch.best[j] / total[j];
            null_sum += posterior;
            add(null_offsets[pair.target[j]], posterior);
        }
    const std::size_t first =
        options_.compatible ? 0 : 1;  // the original program counts target positions from 0 here, from 1 elsewhere
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t row = row_starts[pair.source[i] + 1];
        const Offset* offset = offsets + i * m;
        const double* joint = &scratch.joint[i * m];
        const double across = static_cast<double>(i + 1) / static_cast<double>(n);
        for (std::size_t j = 0; j < m; ++j) {
            const double posterior = joint[j] / total[j];
            feature_sum -= std::fabs(across - static_cast<double>(j + first) / static_cast<double>(m)) * posterior;
            add(row + offset[j], posterior);
        }
    }
    scratch.sums.null_posterior.add(null_sum);
    scratch.sums.feature.add(feature_sum);
}

PassSums AlignedText::expect(const double* t, double tension, ExactCounts& counts, int threads) const {
    return pass(tension, threads, [&](const Pair& pair, const auto* offsets, Scratch& scratch) {
        expect_pair(pair, offsets, t, counts, threads > 1, scratch);
    });
}

template <typename Offset>
void AlignedText::align_pair(const Pair& pair, const Offset* offsets, const double* t, std::int32_t* links, double* margins,
                             Scratch& scratch) const {
    const std::size_t n = pair.source.size(), m = pair.target.size();
    const auto& row_starts = cells_.support.row_starts;
    double* total = (scratch.total.assign(m, 0.0), scratch.total.data());
    double* best = (scratch.best.assign(m, -1.0), scratch.best.data());  // any link is better than no link
    double* second = (scratch.second.assign(m, -1.0), scratch.second.data());
    std::fill_n(links, m, -1);
    if (options_.null_word)
        for (std::size_t j = 0; j < m; ++j) total[j] = best[j] = t[cells_.offsets.null[pair.target[j]]] * pair.prior.null;
    for (std::size_t i = 0; i < n; ++i) {
        const double* row = t + row_starts[pair.source[i] + 1];
        const Offset* offset = offsets + i * m;
        const double* prior = pair.prior.links + i * m;
        for (std::size_t j = 0; j < m; ++j) {
            const double joint = row[offset[j]] * prior[j];
            total[j] += joint;
            const bool better = joint > best[j];
            second[j] = better ? best[j] : std::max(second[j], joint);
            links[j] = better ? static_cast<std::int32_t>(i) : links[j];
            best[j] = better ? joint : best[j];
        }
    }
    scratch.log_likelihood();
    for (std::size_t j = 0; j < m; ++j) {
        scratch.sums.near_ties += second[j] > best[j] * (1 - NEAR_TIE) && second[j] >= 0;
        if (margins) margins[j] = second[j] > 0 ? std::log(best[j] / second[j]) : INFINITY;
    }
}

PassSums AlignedText::align(const double* t, double tension, std::int32_t* links, double* margins, double* pair_scores,
                            int threads) const {
    std::fill_n(links, target_.words.size(), -1);
    if (margins) std::fill_n(margins, target_.words.size(), INFINITY);
    if (pair_scores) std::fill_n(pair_scores, target_.size(), 0.0);
    return pass(tension, threads, [&](const Pair& pair, const auto* offsets, Scratch& scratch) {
        const std::int64_t at = usable_.pairs[pair.index];
        const std::uint64_t start = target_.starts[static_cast<std::size_t>(at)];
        align_pair(pair, offsets, t, links + start, margins ? margins + start : nullptr, scratch);
        if (pair_scores) pair_scores[at] = scratch.pair_score;
    });
}

void maximise(const std::uint64_t* row_starts, std::int64_t rows, const std::uint64_t* low, const std::uint32_t* high,
              const AlignOptions& options, double* t, int threads) {
    constexpr std::int64_t ROWS = 64;
    const std::uint64_t origin = row_starts[0];
    const double digamma_alpha = options.variational_bayes ? digamma(options.alpha) : 0.0;
    const auto maximise_row = [&](std::uint64_t start, std::uint64_t end) {
        ExactUnits units = 0;
        for (std::uint64_t cell = start; cell < end; ++cell) units += exact_units(low[cell], high[cell]);
        double total = exact_value(units);
        if (!options.variational_bayes) {
            if (total == 0) total = 1;
            for (std::uint64_t cell = start; cell < end; ++cell) t[cell] = exact_value(exact_units(low[cell], high[cell])) / total;
            return;
        }
        const double digamma_total = digamma(total + options.alpha * static_cast<double>(end - start));
        const double smallest = std::exp(digamma_alpha - digamma_total);
        for (std::uint64_t cell = start; cell < end; ++cell) {
            const double count = exact_value(exact_units(low[cell], high[cell]));
            t[cell] = count == 0 ? smallest : std::exp(digamma(count + options.alpha) - digamma_total);
        }
    };
    parallel_for((rows + ROWS - 1) / ROWS, threads, [&](std::int64_t group, int) {
        for (std::int64_t row = group * ROWS; row < std::min(rows, (group + 1) * ROWS); ++row)
            if (row_starts[row + 1] > row_starts[row]) maximise_row(row_starts[row] - origin, row_starts[row + 1] - origin);
    });
}

}  // namespace fewstep
