// Options and results that the beam searches share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/numbers.h"
#include "csrc/inference/stepwise/beam.h"

namespace fewstep {

inline Selection selection_of(const std::string& name) {
    if (name == "exact") return Selection::EXACT;
    if (name == "outer") return Selection::OUTER;
    if (name == "outer-authors") return Selection::OUTER_AUTHORS;
    if (name == "double-top-k") return Selection::DOUBLE_TOP_K;
    throw std::invalid_argument("selection: expected exact, outer, outer-authors or double-top-k, got " + name);
}

inline BeamOptions beam_options(int beams, int step_size, bool per_direction, const std::string& selection, std::int64_t eos,
                                std::int64_t pad, int n_best, double alpha, bool gnmt,
                                double beam_threshold = std::numeric_limits<double>::infinity(), BigramCoupling coupling = {}) {
    constexpr int MAX_BEAMS = 1 << 12, MAX_STEP = 1 << 16;  // a step takes memory for each pair of hypothesis and candidate
    require_range("beam_size", beams, 1, MAX_BEAMS);
    require_range("step_size", step_size, 1, MAX_STEP);
    require(n_best >= 1 && n_best <= beams, "n_best: expected 1 to beam_size (" + std::to_string(beams) + ")" + got(n_best));
    require_finite("alpha", alpha);
    require_at_least("beam_threshold", beam_threshold, 0.0);
    const bool apart = selection == "exact" && !per_direction;
    require(coupling.ngram == nullptr || apart, "coupling: expected selection exact, and outputs that end with the first EOS");
    return {{beams, step_size, per_direction, selection_of(selection), eos, pad, std::move(coupling)},
            n_best,
            alpha,
            gnmt,
            beam_threshold};
}

// `right_to_left` by direction of a step.
inline BigramCoupling coupling_of(const NgramScorer* ngram, double weight, const std::vector<bool>& right_to_left) {
    require(!right_to_left.empty(), "coupling: expected at least one direction");
    require_finite("ngram_weight", weight);
    return {ngram, weight, {right_to_left.begin(), right_to_left.end()}};
}

inline void require_limits(const std::vector<std::int64_t>& limits) {
    for (const std::int64_t limit : limits) require(limit >= 1, "limits: expected at least 1, got " + std::to_string(limit));
}

inline auto as_tuples(const std::vector<Outcome>& outcomes) {
    const auto hypothesis = [](const FinishedHypothesis& one) { return std::tuple(one.score, one.tokens); };
    return mapped(outcomes,
                  [&](const Outcome& one) { return std::tuple(mapped(one.hypotheses, hypothesis), one.steps, one.margin); });
}

}  // namespace fewstep
