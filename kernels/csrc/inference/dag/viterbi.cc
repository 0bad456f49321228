#include "csrc/inference/dag/viterbi.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fewstep {

namespace {

constexpr double MINUS_INFINITY = -std::numeric_limits<double>::infinity();
constexpr std::int64_t MAX_CELLS = std::int64_t{1} << 20;  // of graphs whose rows are all held

// next[v] = max_u now[u] + E(u,v) + token(v) for all v between the ends; `first` is the first u that a path can have reached.
void advance(const DagScores& graph, const double* now, std::int64_t first, double* next) {
    const std::int64_t last = graph.vertices - 1;
    std::fill(next, next + last, MINUS_INFINITY);
    for (std::int64_t u = first; u < last; ++u) {
        const double so_far = now[u];
        if (so_far == MINUS_INFINITY) continue;
        const float* row = graph.transitions + u * graph.band;
        const std::int64_t count = std::min(graph.band, last - 1 - u);
        for (std::int64_t d = 0; d < count; ++d) {
            const double score = so_far + static_cast<double>(row[d]);
            next[u + 1 + d] = score > next[u + 1 + d] ? score : next[u + 1 + d];
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
    for (std::int64_t u = std::max<std::int64_t>(1, vertex - graph.band); u < vertex; ++u) {
        const double score = now[u] + static_cast<double>(graph.transitions[u * graph.band + vertex - u - 1]);
        if (score > best.score) best = {u, score};
    }
    return best;
}

DagPath direct(const DagScores& graph) {
    if (graph.band < 1) return {{}, 0, MINUS_INFINITY};
    const double score = static_cast<double>(graph.tokens[0]) + static_cast<double>(graph.transitions[0]);
    if (!(score > MINUS_INFINITY)) return {{}, 0, MINUS_INFINITY};
    return {{0, 1}, 0, score};
}

// The rows s_k: every `step`-th of those so far is kept, and a group of `step` rows from one of these on.
class Rows {
  public:
    Rows(const DagScores& graph, std::int64_t max_length)
        : graph_(graph),
          width_(static_cast<std::size_t>(graph.vertices - 1)),
          step_(max_length * graph.vertices <= MAX_CELLS
                    ? max_length + 1
                    : static_cast<std::int64_t>(std::sqrt(static_cast<double>(max_length))) + 1),
          recent_(static_cast<std::size_t>(step_) * width_) {
        std::fill_n(recent_.begin(), width_, MINUS_INFINITY);
        recent_[0] = graph.tokens[0];
        kept_.emplace_back(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(width_));
    }

    // Row k, at most the one after the last row so far.
    const double* operator[](std::int64_t k) {
        if (k / step_ != group_) restore(k / step_);
        for (; last_ < k; ++last_) advance(graph_, at(last_), last_, at(last_ + 1));
        return at(k);
    }

  private:
    double* at(std::int64_t k) { return recent_.data() + static_cast<std::size_t>(k % step_) * width_; }

    // Go on with the rows of a group, from the first one on.
    void restore(std::int64_t group) {
        const auto index = static_cast<std::size_t>(group);
        if (index == kept_.size()) {
            kept_.emplace_back(width_);
            advance(graph_, at(last_), last_, kept_.back().data());
        }
        std::copy(kept_[index].begin(), kept_[index].end(), recent_.begin());
        group_ = group;
        last_ = group * step_;
    }

    const DagScores& graph_;
    std::size_t width_;
    std::int64_t step_, group_ = 0, last_ = 0;
    std::vector<std::vector<double>> kept_;
    std::vector<double> recent_;
};

}  // namespace

DagPath dag_viterbi(const DagScores& graph, double length_exponent, std::int64_t max_length) {
    const std::int64_t last = graph.vertices - 1;
    if (last == 1) return direct(graph);
    DagPath path{{}, 0, MINUS_INFINITY};
    max_length = std::min(max_length, last - 1);
    if (max_length < 1) return path;
    if (!(graph.tokens[0] > MINUS_INFINITY)) return path;
    Rows rows(graph, max_length);
    std::int64_t end = 0;
    for (std::int64_t k = 1; k <= max_length; ++k) {
        const Best best = best_before(graph, rows[k], last);
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
        end = best_before(graph, rows[k - 1], end).vertex;
    }
    return path;
}

}  // namespace fewstep
