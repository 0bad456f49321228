// Options of an alignment, and its prior as a pass over a text needs it: by lengths of pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

struct AlignOptions {
    bool diagonal = true;           // links near the diagonal are likelier (align/diagonal.h); else all alike
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

// P(f_j, a_j = i) without t, for one size: [i][j], and of null for every j.
struct Prior {
    const double* links;
    double null;
};

// Priors of all sizes under one tension. Those of frequent sizes are kept, up to a bound; others are computed when asked for.
class Priors {
  public:
    Priors(const std::vector<SizeCount>& sizes, const AlignOptions& options, double tension, std::size_t cached_values);

    Prior of(std::uint32_t size, std::vector<double>& scratch) const;

  private:
    void compute(const SizeCount& size, double* links) const;

    const std::vector<SizeCount>& sizes_;
    const AlignOptions& options_;
    double tension_;
    std::vector<double> cached_;
    std::vector<std::int64_t> start_;  // by size; -1 where it is not kept
};

// E[h] per target word under the prior: what the tension is fitted by.
double model_feature(const std::vector<SizeCount>& sizes, std::int64_t target_words, double tension, bool compatible, int threads);

// The next tension of gradient ascent, held within [0.1, 14].
double step_tension(double tension, double posterior_feature, double model_feature);

// Mean over the pairs of target words per source word.
double length_ratio(const std::vector<SizeCount>& sizes);

}  // namespace fewstep
