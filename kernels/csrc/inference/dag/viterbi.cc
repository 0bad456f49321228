#include "csrc/inference/dag/viterbi.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();

// next[v] = max_u now[u] + E(u,v) + token(v) for all v between the ends; `first` is the first u with a path.
void advance(const DagScores& graph, const double* now, std::int64_t first, double* next) {
    const std::int64_t last = graph.vertices - 1;
    std::fill(next, next + last, MINUS_INFINITY);
    for (std::int64_t u = first; u < last; ++u) {
        const double so_far = now[u];
        if (so_far == MINUS_INFINITY) continue;
        const float* row = graph.transitions + u * graph.stride;
        for (std::int64_t v = u + 1; v < last; ++v) {
            const double score = so_far + static_cast<double>(row[v]);
            next[v] = score > next[v] ? score : next[v];
        }
    }
    for (std::int64_t v = first + 1; v < last; ++v) {
        const double score = next[v] + static_cast<double>(graph.tokens[v]);
        next[v] = score == score ? score : MINUS_INFINITY;
    }
}

// The first vertex with the highest sum, or 0.
struct Best {
    std::int64_t vertex = 0;
    double score = MINUS_INFINITY;
};
Best best_before(const DagScores& graph, const double* now, std::int64_t vertex) {
    Best best;
    for (std::int64_t u = 1; u < vertex; ++u) {
        const double score = now[u] + static_cast<double>(graph.transitions[u * graph.stride + vertex]);
        if (score > best.score) best = {u, score};
    }
    return best;
}

DagPath direct(const DagScores& graph) {
    const double score = static_cast<double>(graph.tokens[0]) + static_cast<double>(graph.transitions[1]);
    if (!(score > MINUS_INFINITY)) return {{}, 0, MINUS_INFINITY};
    return {{0, 1}, 0, score};
}

}  // namespace

DagPath dag_viterbi(const DagScores& graph, double length_exponent, std::int64_t max_length) {
    const std::int64_t last = graph.vertices - 1;
    if (last == 1) return direct(graph);
    DagPath path{{}, 0, MINUS_INFINITY};
    max_length = std::min(max_length, last - 1);
    if (max_length < 1) return path;
    const auto width = static_cast<std::size_t>(last);
    std::vector<std::vector<double>> sums;  // by number of tokens: s_k(v)
    sums.emplace_back(width, MINUS_INFINITY);
    sums[0][0] = graph.tokens[0];
    if (!(sums[0][0] > MINUS_INFINITY)) return path;
    std::int64_t end = 0;
    for (std::int64_t k = 1; k <= max_length; ++k) {
        sums.emplace_back(width);
        advance(graph, sums[static_cast<std::size_t>(k - 1)].data(), k - 1, sums.back().data());
        const Best best = best_before(graph, sums.back().data(), last);
        const double score = best.score / std::pow(static_cast<double>(k), length_exponent);
        if (score > path.score) {
            path.score = score;
            path.tokens = k;
            end = best.vertex;
        }
    }
    if (path.tokens == 0) return path;
    path.vertices.assign(static_cast<std::size_t>(path.tokens) + 2, 0);
    path.vertices.back() = last;
    for (std::int64_t k = path.tokens; k > 0; --k) {
        path.vertices[static_cast<std::size_t>(k)] = end;
        end = best_before(graph, sums[static_cast<std::size_t>(k - 1)].data(), end).vertex;
    }
    return path;
}

}  // namespace fewstep
