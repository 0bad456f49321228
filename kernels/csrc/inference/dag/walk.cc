#include "csrc/inference/dag/walk.h"

#include <cmath>
#include <limits>

namespace fewstep {

namespace {

constexpr double INFINITE_SCORE = std::numeric_limits<double>::infinity();

double probability_limit(const DagWalkOptions& options) { return options.top_p < 1 ? options.top_p : INFINITE_SCORE; }

// A SplitMix64 random number in [0, 1) (Steele et al. 2014), as a function of its index in the sequence.
double uniform(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t bits = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return static_cast<double>((bits ^ bits >> 31) >> 11) * 0x1p-53;
}

// Walk from vertex 0 on; choose(candidates, tokens so far, vertex) returns the index of the chosen candidate at each vertex.
template <typename Choose>
DagWalk walk(const DagCandidates& sentence, std::int64_t max_candidates, const Choose& choose) {
    DagWalk found;
    const std::int64_t last = sentence.vertices - 1;
    std::vector<DagCandidate> candidates;
    std::vector<std::int32_t> tokens;
    for (std::int64_t vertex = 0; vertex < last;) {
        found.vertices.push_back(vertex);
        found.tokens.push_back(vertex ? tokens.back() : -1);
        valid_candidates(sentence, vertex, max_candidates, candidates);
        if (candidates.empty()) break;
        const DagCandidate& chosen = candidates[choose(candidates, tokens, vertex)];
        found.score += chosen.score;
        tokens.push_back(chosen.token);
        vertex = chosen.next;
        if (vertex < last) continue;
        found.vertices.push_back(vertex);
        found.tokens.push_back(-1);
    }
    if (last < 1 || found.vertices.back() != last) found.score = -INFINITE_SCORE;
    return found;
}

bool repeats_candidate(const RepeatRules& rules, std::span<const std::int32_t> tokens, const DagCandidate& one) {
    return one.token >= 0 && repeats(rules, tokens, one.token);
}

}  // namespace

std::vector<std::int64_t> dag_follow(std::span<const std::int64_t> next_vertices) {
    const auto vertices = static_cast<std::int64_t>(next_vertices.size());
    std::vector<std::int64_t> path;
    for (std::int64_t vertex = 0, before = -1; vertex > before && vertex < vertices;) {
        path.push_back(vertex);
        before = vertex;
        vertex = vertex == vertices - 1 ? vertices : next_vertices[static_cast<std::size_t>(vertex)];
    }
    return path;
}

DagWalk dag_lookahead(const DagCandidates& sentence, const DagWalkOptions& options) {
    const double limit = probability_limit(options);
    return walk(sentence, options.candidates, [&](const auto& candidates, const auto& tokens, std::int64_t) -> std::size_t {
        double skipped = 0;
        for (std::size_t at = 0; at < candidates.size() && skipped <= limit; ++at) {
            if (!repeats_candidate(options.rules, tokens, candidates[at])) return at;
            skipped += std::exp(candidates[at].score);
        }
        return 0;
    });
}

DagWalk dag_sample(const DagCandidates& sentence, const DagWalkOptions& options, std::uint64_t seed) {
    const double limit = probability_limit(options);
    std::vector<double> weights;
    return walk(sentence, options.candidates, [&](const auto& candidates, const auto& tokens, std::int64_t vertex) -> std::size_t {
        weights.clear();
        double probability_seen = 0, sum = 0;
        for (const DagCandidate& one : candidates) {
            if (probability_seen > limit) break;
            probability_seen += std::exp(one.score);
            // relative to the best candidate, so that not all weights underflow
            weights.push_back(std::exp(one.score - candidates[0].score) *
                              (repeats_candidate(options.rules, tokens, one) ? BANNED : 1));
            sum += weights.back();
        }
        double threshold = uniform(seed, static_cast<std::uint64_t>(vertex)) * sum;
        std::size_t at = 0;
        for (; at + 1 < weights.size() && threshold >= weights[at]; ++at) threshold -= weights[at];
        return at;
    });
}

}  // namespace fewstep
