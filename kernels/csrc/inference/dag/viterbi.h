// Joint Viterbi decoding of a DAG with a length penalty (Shao et al. 2022).
#pragma once

#include <cstdint>
#include <vector>

namespace fewstep {

// The scores of one sentence. Transitions lead to the next `band` vertices, as far as the graph has them.
struct DagScores {
    const float* transitions;  // [vertices,band] by the number of vertices between both ends
    const float* tokens;       // [vertices] score of the best token of each vertex
    std::int64_t vertices, band;
};

struct DagPath {
    std::vector<std::int64_t> vertices;  // with both ends; empty if there is no valid path
    std::int64_t tokens = 0;             // vertices between the ends
    double score = 0;                    // divided by tokens^length_exponent
};

// For k vertices between the ends (Shao et al. 2022, equation 7, with token scores)
//     s_1(v) = token(0) + E(0,v) + token(v)        s_{k+1}(v) = max_u s_k(u) + E(u,v) + token(v)
// the result is the best path over k and v by (s_k(v) + E(v,last)) / k^length_exponent, with 1 <= k <= max_length. Ties go to the
// shortest path, then to the one with the first vertices, compared from the end. A graph of 2 vertices has the path without
// vertices between its ends. Scores of minus infinity and NaN are invalid.
// The K = max_length rows s_k of a large graph are not held together, but 2 sqrt(K) of them, and those of the path computed twice.
DagPath dag_viterbi(const DagScores& graph, double length_exponent, std::int64_t max_length);

}  // namespace fewstep
