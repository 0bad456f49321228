// Walks through a DAG from its first to its last vertex, which choose one candidate at each vertex.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/dag/candidates.h"

namespace fewstep {

// Follow pointers from vertex 0 to the last vertex. A pointer that does not lead to a later vertex ends the walk.
std::vector<std::int64_t> dag_follow(std::span<const std::int64_t> next_vertices);

struct DagWalkOptions {
    std::int64_t candidates = 5;  // best candidates considered at a vertex
    double top_p = 0.9;
    RepeatRules rules;
};

struct DagWalk {
    std::vector<std::int64_t> vertices, tokens;  // by vertex of the walk; the ends have token -1
    double score = 0;  // the sum over the chosen candidates; minus infinity if the walk does not reach the last vertex
};

// Lookahead: choose at each vertex the best candidate that violates no repeat rule, or the best of all if every candidate does, or
// if the better ones have more than top_p probability (1: no limit).
DagWalk dag_lookahead(const DagCandidates& sentence, const DagWalkOptions& options);

// Sampling: choose at each vertex one of the best candidates with a total probability of more than top_p (1: of all), by their
// probabilities; the weight of candidates that violate a repeat rule is multiplied by BANNED. The choice is a function of seed and
// vertex.
inline constexpr double BANNED = 1e-5;
DagWalk dag_sample(const DagCandidates& sentence, const DagWalkOptions& options, std::uint64_t seed);

}  // namespace fewstep
