// Candidates for the next step of a search over a DAG.
#pragma once

#include <cstdint>
#include <vector>

namespace fewstep {

// The candidates of the vertices of one sentence: pairs of a next vertex and the token that it emits, with log-probabilities.
struct DagCandidates {
    const float* scores;                // [vertices,width]
    const std::int64_t* next_vertices;  // [vertices,width]
    const std::int64_t* token_ids;      // [vertices,width]
    std::int64_t vertices, width;       // vertices of the graph; the last one is its end
    std::int64_t vocabulary;            // exclusive upper bound of token ids
};

struct DagCandidate {
    double score;
    std::int32_t next, token;
};

// Finite scores beyond this magnitude (such as masks of -1e9) count as minus infinity or as invalid.
inline constexpr float DAG_MAX_SCORE = 1e6f;

// The valid candidates of a vertex, best first with a stable order, at most `max_count`. Candidates are invalid if their score is
// not finite, their token is negative, or their vertex is not a later one of the graph. Throws std::invalid_argument for a token id
// of at least `vocabulary`, except at the last vertex, which emits EOS.
void valid_candidates(const DagCandidates& all, std::int64_t vertex, std::int64_t max_count, std::vector<DagCandidate>& valid);

}  // namespace fewstep
