// The options that every beam search takes, and what it returns.
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
#include "csrc/inference/stepwise/beam.h"

namespace fewstep {

inline Selection selection_of(const std::string& name) {
    if (name == "exact") return Selection::EXACT;
    if (name == "outer") return Selection::OUTER;
    if (name == "double-top-k") return Selection::DOUBLE_TOP_K;
    throw std::invalid_argument("selection: expected exact, outer or double-top-k, got " + name);
}

inline BeamOptions beam_options(int beams, int step_size, bool per_direction, const std::string& selection, std::int64_t eos,
                                std::int64_t pad, int n_best, double alpha, bool gnmt,
                                double prune = std::numeric_limits<double>::infinity(), Neighbours neighbours = {}) {
    require(beams >= 1 && step_size >= 1, "beam: expected beam_size and step_size of at least 1");
    require(n_best >= 1 && n_best <= beams, "n_best: expected 1 to beam_size (" + std::to_string(beams) + "), got " + std::to_string(n_best));
    require(prune >= 0.0, "prune: expected at least 0 nats");
    const bool apart = selection == "exact" && !per_direction;
    require(neighbours.ngram == nullptr || apart, "neighbours: expected selection exact, and outputs that end with the first EOS");
    return {{beams, step_size, per_direction, selection_of(selection), eos, pad, std::move(neighbours)}, n_best, alpha, gnmt, prune};
}

// `leftward` of each direction of a step.
inline Neighbours neighbours_of(const NgramScorer* ngram, double weight, const std::vector<bool>& leftward) {
    require(!leftward.empty(), "neighbours: expected directions");
    return {ngram, weight, {leftward.begin(), leftward.end()}};
}

inline void require_limits(const std::vector<std::int64_t>& limits) {
    for (const std::int64_t limit : limits) require(limit >= 1, "limits: expected at least 1, got " + std::to_string(limit));
}

inline nanobind::list as_list(const std::vector<Outcome>& outcomes) {
    nanobind::list all;
    for (const Outcome& outcome : outcomes) {
        nanobind::list hypotheses;
        for (const Finished& one : outcome.hypotheses) hypotheses.append(nanobind::make_tuple(one.score, one.tokens));
        all.append(nanobind::make_tuple(hypotheses, outcome.steps, outcome.margin));
    }
    return all;
}

}  // namespace fewstep
