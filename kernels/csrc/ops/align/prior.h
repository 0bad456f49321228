// Options of alignment, and the prior by sentence lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

struct AlignOptions {
    bool diagonal = true;           // diagonal prior (diagonal.h); else uniform
    bool variational_bayes = true;  // M-step with a Dirichlet prior
    bool null_word = true;
    bool compatible = true;  // reproduce two deviations of the original program in the gradient of the tension
    double p0 = 0.08;
    double alpha = 0.01;
    std::int64_t max_length = 2000;  // in words of a sentence
};

// The number of pairs with m target words and n source words; sorted.
struct SizeCount {
    std::uint32_t m, n;
    std::int64_t count;
};

// P(a_j = i) for one pair of lengths: links [i][j], and null for every j.
struct Prior {
    const double* links;
    double null;
};

// Priors of all pairs of lengths for one tension. Those of frequent lengths are cached, up to a limit; others are computed on
// demand.
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
    std::vector<std::int64_t> start_;  // by pair of lengths; -1 if it is not cached
};

// E[h] per target word under the prior, the target of the tension's gradient.
double model_feature(const std::vector<SizeCount>& sizes, std::int64_t target_words, double tension, bool compatible, int threads);

// The next tension of gradient ascent, clamped to [0.1, 14].
double step_tension(double tension, double posterior_feature, double model_feature);

// The mean over the pairs of target words per source word.
double length_ratio(const std::vector<SizeCount>& sizes);

}  // namespace fewstep
