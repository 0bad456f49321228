// What the searches over a directed acyclic graph of vertices may do next at each vertex.
#pragma once

#include <cstdint>
#include <vector>

namespace fewstep {

// Candidates of the vertices of one sentence: pairs of a next vertex and the token that it emits, in nats.
struct DagCandidates {
    const float* scores;                // [vertices,width]
    const std::int64_t* next_vertices;  // [vertices,width]
    const std::int64_t* token_ids;      // [vertices,width]
    std::int64_t vertices, width;       // those of the graph: the last one is its end
    std::int64_t vocabulary;            // token ids are below it
};

struct DagCandidate {
    double score;
    std::int32_t next, token;
};

// Finite scores beyond this are taken for minus infinity (masks of -1e9 are) or for no number.
inline constexpr float DAG_MAX_SCORE = 1e6f;

// The possible candidates of a vertex, best first (of equal ones as they stand), at most `limit`. Impossible are those with a score
// that is minus infinity, NaN or plus infinity, with a negative token, and those whose vertex is not a later one of the graph.
// Throws std::invalid_argument for a token id that is not below `vocabulary`, unless the vertex is the last one, which emits EOS.
void valid_candidates(const DagCandidates& all, std::int64_t vertex, std::int64_t max_count, std::vector<DagCandidate>& valid);

}  // namespace fewstep
