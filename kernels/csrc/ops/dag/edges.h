// The transitions of a sentence that its paths can take, as a band of a matrix.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "csrc/base/simd_f64.h"
#include "csrc/ops/dag/paths.h"

namespace fewstep {

// Row i has the cells of the next `longest_transition` vertices, and cells of the initial value around them, so that a group of
// columns that begins at a multiple of the lanes and overlaps the band can be read as a whole. Memory is linear in the vertices.
class DagEdges {
  public:
    // The most columns that are read at a time.
    static constexpr std::size_t GROUP = 4 * F64_LANES;

    // Set all cells to `value`; `more_rows` rows follow those of the sentence.
    void reset(const DagSentence& sentence, double value, std::size_t more_rows = 0) {
        stride_ = round_up(sentence.longest_transition) + BEFORE + AFTER;
        cells_.assign((sentence.vertices + more_rows) * stride_, value);
    }
    // The row of a vertex: cell j is that of the transition to vertex j.
    double* operator[](std::size_t vertex) { return cells_.data() + offset(vertex); }
    const double* operator[](std::size_t vertex) const { return cells_.data() + offset(vertex); }

  private:
    // A group begins at most GROUP - F64_LANES columns before the lanes of the first transition, i + 1, and ends less than GROUP
    // columns after the last one.
    static constexpr std::size_t BEFORE = GROUP - F64_LANES, AFTER = GROUP + F64_LANES;

    std::size_t offset(std::size_t vertex) const { return vertex * stride_ + BEFORE - round_down(vertex + 1); }

    std::size_t stride_ = 0;
    std::vector<double> cells_;
};

// The sum over all paths in log space: correct for all scores, but one exponential per product slower than products of scaled
// probabilities.

class DagLogSpace {
  public:
    // As dag_log_likelihood, for a sentence that has a path. `posteriors` may be null; they are written if log Z is finite.
    double log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors);

  private:
    bool load(const DagSentence& sentence);
    double forward(const DagSentence& sentence);
    void backward(const DagSentence& sentence, const DagPosteriors& posteriors);
    void write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors) const;

    double* row(std::vector<double>& table, std::size_t index) const { return table.data() + index * width_; }
    const double* row(const std::vector<double>& table, std::size_t index) const { return table.data() + index * width_; }

    std::size_t width_ = 0;                      // cells of a row: vertices, rounded up
    DagEdges transitions_;                       // minus infinity where no path goes, as are
    std::vector<double> tokens_, alpha_, beta_;  // [M,width]
};

// The sum over all paths by products of scaled probabilities: fast, with a check of its own accuracy.

// With the highest transition G and the highest score top_t of token t, the recurrences run in doubles on
//     E[i,j] = exp(transition[i,j] - G)                     A[t,j] = exp(alpha[t,j] - c_t), where max_j A[t,j] = 1
//     W[t,j] = exp(token[t,j] - top_t)                      B[t,j] = exp(beta[t,j] - d_t), where max_j B[t,j] = 1
//     A[t] ~ W[t] * (A[t-1] E)                              B[t] ~ W[t] * U[t]     U[t] = E B[t+1]
// Cells below a threshold are dropped, so that no product underflows; `lost` bounds the sum over j of the mass that is missing in
// A[t,j]. If it could change log Z, if paths are missing in the backward pass, or if a step is too small, there is no result and
// DagLogSpace is used.
class DagScaledSpace {
  public:
    // As dag_log_likelihood, for a sentence that has a path; nullopt if the result would be inaccurate. Posteriors (may be null)
    // are zero before; some cells may be written even without a result.
    std::optional<double> log_likelihood(const DagSentence& sentence, const DagPosteriors* posteriors);

  private:
    void reset(const DagSentence& sentence);
    bool load(const DagSentence& sentence);
    bool forward(const DagSentence& sentence);
    bool backward(const DagSentence& sentence, const DagPosteriors& posteriors);
    void write_transitions(const DagSentence& sentence, const DagPosteriors& posteriors);
    static bool rescale(double* cells, std::size_t width, double& log_scale, double& lost);

    double* row(std::vector<double>& table, std::size_t index) { return table.data() + index * width_; }

    std::size_t width_ = 0;               // cells of a row: vertices, rounded up
    DagEdges E_;                          // 0 where no path goes
    std::vector<double> W_, A_, B_;       // [M,width], 0 outside the band
    std::vector<double> U_;               // [width], later a group of rows of it
    std::vector<double> c_, top_;         // [M]
    std::vector<double> lost_A_;          // [M] bounds of the missing mass
    std::vector<double> max_dropped_W_;   // [M] largest dropped cell of W[t]
    double G_, row_sum_, max_dropped_E_;  // row_sum: max_i sum_j E[i,j]; max_dropped_E: largest dropped cell of E
};

}  // namespace fewstep
