// Walks through a graph of vertices from its first to its last: one candidate at each vertex, and never back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/dag/candidates.h"
#include "csrc/inference/dag/repeat_rules.h"

namespace fewstep {

// The vertices from 0 to the last one. A pointer that leads to no later vertex of the graph ends the walk.
std::vector<std::int64_t> dag_follow(std::span<const std::int64_t> next_vertices);

struct DagWalkOptions {
    std::int64_t candidates = 5;  // best ones of a vertex that are looked at
    double top_p = 0.9;
    RepeatRules rules;
};

struct DagWalk {
    std::vector<std::int64_t> vertices, tokens;  // by vertex of the walk; -1 for the tokens of the ends
    double score = 0;  // the sum of the candidates'; minus infinity where the walk found no way to the end
};

// At each vertex the best candidate that repeats nothing; the best of all where all do, or where those that come before it hold
// more probability than top_p (1: any).
DagWalk dag_lookahead(const DagCandidates& sentence, const DagWalkOptions& options);

// At each vertex one of the best candidates that hold more probability than top_p (1: of all), drawn by their probabilities. Those
// that repeat something weigh BANNED of theirs. What is drawn at a vertex is a function of seed and vertex.
inline constexpr double BANNED = 1e-5;
DagWalk dag_sample(const DagCandidates& sentence, const DagWalkOptions& options, std::uint64_t seed);

}  // namespace fewstep
