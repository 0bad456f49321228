// The sum over all paths by plain products of scaled probabilities: quick, and it says when it would not do.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "csrc/ops/dag/paths.h"

namespace fewstep {

// With G the highest transition and top_t the highest score of token t, the recurrences run on
//
//     E[i,j] = exp(transition[i,j] - G)                     A[t,j] = exp(alpha[t,j] - c_t), the highest of each t being 1
//     W[t,j] = exp(token[t,j] - top_t)                      B[t,j] = exp(beta[t,j] - d_t), likewise
//
//     A[t] ~ W[t] * (A[t-1] E)                              B[t] ~ W[t] * U[t]     U[t] = E B[t+1]
//
// in doubles. What falls below a threshold is dropped, so that no product underflows, and what was dropped is followed: `lost`
// bounds the sum over j of what is missing in A[t,j]. Where it could touch log Z, or paths are missing on the way back, or a step
// leaves almost nothing, there is no result and `DagCareful` has to do it.
class DagScaledSpace {
  public:
    // As in dag_log_likelihood; none where it would not do. The sentence is `possible`. Posteriors, all zero before, are written
    // where they are wanted; also some cells, perhaps, where there is no result.
    std::optional<double> log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors);

  private:
    void reset(const DagSentence& sentence);
    bool load(const DagSentence& sentence);
    bool forward(const DagSentence& sentence);
    bool backward(const DagSentence& sentence, const DagPosteriors& posteriors);
    void write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors);
    static bool rescale(double* cells, std::size_t width, double& log_scale, double& lost);

    double* row(std::vector<double>& table, std::size_t index) { return table.data() + index * width_; }

    std::size_t width_ = 0;          // cells of a row: vertices, rounded up
    std::vector<double> E_;          // [L,width]
    std::vector<double> W_, A_, B_;  // [M,width], 0 outside the band
    std::vector<double> U_;          // [width], later some rows of it
    std::vector<double> c_, top_;    // [M]
    std::vector<double> lost_A_;     // [M] see above
    std::vector<double> max_dropped_W_;      // [M] the highest of what was dropped from W[t]
    double G_, row_sum_, max_dropped_E_;     // row_sum: the highest sum_j E[i,j]; cut_E: the highest of what was dropped from E
};

}  // namespace fewstep
