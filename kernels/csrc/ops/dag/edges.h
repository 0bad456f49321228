// The transitions of a sentence that its paths can take, as a band of a matrix.
#pragma once

#include <cstddef>
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

}  // namespace fewstep
