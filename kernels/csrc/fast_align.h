// fast_align: word alignment by IBM model 2 with a prior that favours the diagonal (Dyer, Chahuneau and Smith 2013).
//
//     P(f_j, a_j = i) = t(f_j | e_i) * prior(i | j, m, n)         P(f_j, a_j = null) = t(f_j | null) * p0
//
// EM: posteriors of the links under the current t (E-step) are counted exactly (exact_sum.h), then t is their ratio, or its
// variational Bayes form under a Dirichlet prior (M-step). Results depend neither on threads nor on how a text is cut.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/bitext.h"
#include "csrc/exact_sum.h"
#include "csrc/support.h"

namespace fewstep {

struct AlignOptions {
    bool diagonal = true;           // the prior above; else uniform over positions and null
    bool variational_bayes = true;  // the Dirichlet M-step
    bool null_word = true;
    bool compatible = true;  // upstream's two quirks in the tension's gradient
    double p0 = 0.08;
    double alpha = 0.01;
    std::int64_t max_length = 2000;  // words of a sentence
};

// How many pairs have m target words and n source words; sorted.
struct SizeCount {
    std::uint32_t m, n;
    std::int64_t count;
};

// What a pass sums up over the pairs.
struct PassSums {
    ExactSum log_likelihood;  // natural logarithm, of the target words given the source
    ExactSum null_posterior;
    ExactSum feature;
    std::int64_t near_ties = 0;  // target words whose two best links are within 1e-9 of each other, of the last pass

    void add(const PassSums& other);
};

// P(f_j, a_j = i) without t, for one size: [i][j], and of null for every j.
struct Prior {
    const double* links;
    double null;
};

// Priors of all sizes under one tension. Those of frequent sizes are kept, up to a bound; others are computed when asked for.
class Priors {
 public:
    Priors(const std::vector<SizeCount>& sizes, const AlignOptions& options, double tension, std::size_t kept_values);

    Prior of(std::uint32_t size, std::vector<double>& scratch) const;

 private:
    void compute(const SizeCount& size, double* links) const;

    const std::vector<SizeCount>& sizes_;
    const AlignOptions& options_;
    double tension_;
    std::vector<double> kept_;
    std::vector<std::int64_t> start_;  // by size; -1 where it is not kept
};

// A text, or a shard of one, ready for passes over it. It refers to the sentences, which must outlive it.
class AlignedText {
 public:
    AlignedText(const Sentences& source, const Sentences& target, std::uint32_t source_size, std::uint32_t target_size,
                const AlignOptions& options, bool keep_columns, int threads);

    // E-step: adds the posteriors under t (by cell of `support()`) to `counts`.
    PassSums expect(const double* t, double tension, ExactCounts& counts, int threads) const;

    // Best link of each target word of `target`, in text order: the source position, -1 for null, and -1 in pairs that take no
    // part. Null wins a tie, then the leftmost position. `margins`, unless null, gets the logarithm of best over second best;
    // `pair_scores` the log-likelihood of each pair (0 where it takes no part).
    PassSums align(const double* t, double tension, std::int32_t* links, double* margins, double* pair_scores, int threads) const;

    const Support& support() const { return cells_.support; }
    const Usable& usable() const { return usable_; }
    const std::vector<SizeCount>& sizes() const { return sizes_; }
    std::int64_t target_words() const { return target_words_; }
    const AlignOptions& options() const { return options_; }

 private:
    struct Pair;
    struct Scratch;
    template <typename Body>
    PassSums pass(double tension, int threads, const Body& body) const;
    template <typename Place>
    void expect_pair(const Pair& pair, const Place* places, const double* t, ExactCounts& counts, bool shared, Scratch& scratch) const;
    template <typename Place>
    void align_pair(const Pair& pair, const Place* places, const double* t, std::int32_t* links, double* margins,
                    Scratch& scratch) const;

    AlignOptions options_;
    const Sentences& source_;
    const Sentences& target_;
    Usable usable_;
    Cells cells_;
    std::vector<SizeCount> sizes_;
    std::vector<std::uint32_t> size_of_;  // by usable pair
    std::int64_t target_words_ = 0;
};

// M-step over whole rows of cells. `row_starts` has rows + 1 entries, counted from that of the first row.
//     t = C / sum C                                                       (0 / 0 = 0)
//     t = exp(digamma(C + alpha) - digamma(sum (C + alpha)))              variational Bayes
void maximise(const std::uint64_t* row_starts, std::int64_t rows, const std::uint64_t* low, const std::uint32_t* high,
              const AlignOptions& options, double* t, int threads);

// E[h] per target word under the prior: what the tension is fitted by.
double model_feature(const std::vector<SizeCount>& sizes, std::int64_t target_words, double tension, bool compatible, int threads);

// The next tension of gradient ascent, held within [0.1, 14].
double step_tension(double tension, double posterior_feature, double model_feature);

// Mean over the pairs of target words per source word.
double length_ratio(const std::vector<SizeCount>& sizes);

}  // namespace fewstep
