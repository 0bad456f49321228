// fast_align: word alignment by IBM model 2 with a diagonal prior (Dyer, Chahuneau and Smith 2013).
//     P(f_j, a_j = i) = t(f_j | e_i) * prior(i | j, m, n)         P(f_j, a_j = null) = t(f_j | null) * p0
// The E-step adds up the posteriors of the links under the current t exactly (base/exact_sum.h); the M-step sets t to their ratio,
// or to its variational Bayes form under a Dirichlet prior. Results depend neither on threads nor on shards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/base/exact_sum.h"
#include "csrc/ops/align/bitext.h"
#include "csrc/ops/align/prior.h"
#include "csrc/ops/align/support.h"

namespace fewstep {

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
