// The sum over all paths in log space: correct for all scores, but one exponential per product slower than scaled_space.h.
#pragma once

#include <vector>

#include "csrc/ops/dag/edges.h"
#include "csrc/ops/dag/paths.h"

namespace fewstep {

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

}  // namespace fewstep
