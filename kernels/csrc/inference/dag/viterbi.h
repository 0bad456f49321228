// The most probable path through a graph of vertices, of the length that is best.
#pragma once

#include <cstdint>
#include <vector>

namespace fewstep {

// One sentence. Transitions i -> j are read for j > i only.
struct DagScores {
    const float* transitions;  // [vertices,stride]
    const float* tokens;       // [vertices], the score of the token of each vertex
    std::int64_t vertices, stride;
};

struct DagPath {
    std::vector<std::int64_t> vertices;  // with both ends; none where no path is possible
    std::int64_t tokens = 0;             // vertices between the ends
    double score = 0;                    // divided by tokens^length_exponent
};

// For k vertices between the ends (Shao et al. 2022, with the tokens' scores: joint Viterbi)
//
//     s_1(v) = token(0) + E(0,v) + token(v)        s_{k+1}(v) = max_u s_k(u) + E(u,v) + token(v)
//
// and the path is the best over k and v of (s_k(v) + E(v,last)) / k^length_exponent, with k from 1 to `longest`: the shortest of
// equal ones, and of these the one whose vertices come first, from the end backwards. Only where the ends are the one path there is
// (2 vertices) it has none between. Impossible is what scores minus infinity or NaN.
DagPath dag_viterbi(const DagScores& graph, double length_exponent, std::int64_t max_length);

}  // namespace fewstep
