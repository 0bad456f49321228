// fast_align: word alignment by IBM model 2 with a diagonal prior (Dyer, Chahuneau and Smith 2013).
//     P(f_j, a_j = i) = t(f_j | e_i) * prior(i | j, m, n)         P(f_j, a_j = null) = t(f_j | null) * p0
// The E-step adds up the posteriors of the links under the current t exactly (base/exact_sum.h); the M-step sets t to their ratio,
// or to its variational Bayes form under a Dirichlet prior. Results depend neither on threads nor on shards.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/ops/align/bitext.h"
#include "csrc/ops/align/prior.h"
#include "csrc/ops/align/support.h"

namespace fewstep {

// Fixed-point sums, which do not depend on the order of their terms and therefore neither on threads nor on shards.

// A sum of signed terms in units of 2^-84, of magnitude below 2^43.
struct ExactSum {
    __int128 units = 0;

    // Larger terms, and such that are no numbers, count as the largest ones: they come from tables that are no probabilities.
    void add(double term) {
        constexpr double LARGEST = 0x1p42;
        const double bounded = term > -LARGEST ? (term < LARGEST ? term : LARGEST) : -LARGEST;
        add(ExactSum{static_cast<__int128>(bounded * 0x1p84)});
    }
    void add(const ExactSum& other) {
        units = static_cast<__int128>(static_cast<unsigned __int128>(units) + static_cast<unsigned __int128>(other.units));
    }
};

constexpr double FIXED_ONE = 0x1p62;

// Sums of terms from [0, 1], each below 2^34: value = (high * 2^64 + low) / 2^62. Terms below 2^-62 count as 0.
struct ExactCounts {
    std::vector<std::uint64_t> low;
    std::vector<std::uint32_t> high;

    explicit ExactCounts(std::size_t size = 0) : low(size), high(size) {}

    void add(std::size_t cell, double term) {
        const auto units = static_cast<std::uint64_t>(static_cast<std::int64_t>(term * FIXED_ONE));
        low[cell] += units;
        high[cell] += low[cell] < units;
    }

    // Like add, while other threads add too. Integer addition is exact, so the order of the threads does not matter.
    void add_shared(std::size_t cell, double term) {
        const auto units = static_cast<std::uint64_t>(static_cast<std::int64_t>(term * FIXED_ONE));
        if (units == 0) return;
        const std::uint64_t before = std::atomic_ref<std::uint64_t>(low[cell]).fetch_add(units, std::memory_order_relaxed);
        if (before + units < before) std::atomic_ref<std::uint32_t>(high[cell]).fetch_add(1, std::memory_order_relaxed);
    }
};

using ExactUnits = unsigned __int128;

inline ExactUnits exact_units(std::uint64_t low, std::uint32_t high) { return (static_cast<ExactUnits>(high) << 64) | low; }

inline double exact_value(ExactUnits units) {
    const bool small = units >> 64 == 0;  // the same value, computed faster
    return (small ? static_cast<double>(static_cast<std::uint64_t>(units)) : static_cast<double>(units)) / FIXED_ONE;
}

// Sums of a pass over the pairs.
struct PassSums {
    ExactSum log_likelihood;  // natural logarithm, of the target words given the source
    ExactSum null_posterior;
    ExactSum feature;
    std::int64_t near_ties = 0;  // target words whose two best links are within 1e-9 of each other

    void add(const PassSums& other);
};

// A text or a shard, prepared for passes. It refers to the sentences, which must outlive it.
class AlignedText {
  public:
    AlignedText(const Sentences& source, const Sentences& target, std::uint32_t source_size, std::uint32_t target_size,
                const AlignOptions& options, bool keep_columns, int threads);

    // E-step: add the posteriors under t (by cell of `support()`) to `counts`.
    PassSums expect(const double* t, double tension, ExactCounts& counts, int threads) const;

    // Find the best link of each target word of `target`, in text order: the source position, -1 for null, and -1 in skipped pairs.
    // Ties go to null, then to the leftmost position. `margins` (may be null) receives the log of best over second best,
    // `pair_scores` the log-likelihood of each pair (0 for skipped pairs).
    PassSums align(const double* t, double tension, std::int32_t* links, double* margins, double* pair_scores, int threads) const;

    const Support& support() const { return cells_.support; }
    const UsablePairs& usable() const { return usable_; }
    const std::vector<SizeCount>& sizes() const { return sizes_; }
    std::int64_t target_words() const { return target_words_; }
    const AlignOptions& options() const { return options_; }

  private:
    struct Pair;
    struct Scratch;
    template <typename Body>
    PassSums pass(double tension, int threads, const Body& body) const;
    template <typename Offset>
    void expect_pair(const Pair& pair, const Offset* offsets, const double* t, ExactCounts& counts, bool shared,
                     Scratch& scratch) const;
    template <typename Offset>
    void align_pair(const Pair& pair, const Offset* offsets, const double* t, std::int32_t* links, double* margins,
                    Scratch& scratch) const;

    AlignOptions options_;
    const Sentences& source_;
    const Sentences& target_;
    UsablePairs usable_;
    Cells cells_;
    std::vector<SizeCount> sizes_;
    std::vector<std::uint32_t> size_of_;  // by usable pair
    std::int64_t target_words_ = 0;
};

// M-step over whole rows of cells. `row_starts` has rows + 1 entries, relative to the first row.
//     t = C / sum C                                                       (0 / 0 = 0)
//     t = exp(digamma(C + alpha) - digamma(sum (C + alpha)))              variational Bayes
void maximise(const std::uint64_t* row_starts, std::int64_t rows, const std::uint64_t* low, const std::uint32_t* high,
              const AlignOptions& options, double* t, int threads);

}  // namespace fewstep
