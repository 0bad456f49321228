// Sums and maxima over all paths of a DAG (Huang et al. 2022, section 3.3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "csrc/base/simd_f64.h"

namespace fewstep {

// An array of float or double; exactly one pointer is set.
template <typename Float, typename Double>
struct Values {
    Float* floats = nullptr;
    Double* doubles = nullptr;

    Values at(std::size_t index) const { return {floats ? floats + index : nullptr, doubles ? doubles + index : nullptr}; }
};
using Scores = Values<const float, const double>;
using Results = Values<float, double>;

inline double get(const Scores& scores, std::size_t index) { return scores.floats ? scores.floats[index] : scores.doubles[index]; }
inline void set(const Results& results, std::size_t index, double value) {
    if (results.floats)
        results.floats[index] = static_cast<float>(value);
    else
        results.doubles[index] = value;
}

// A batch of B sentences with at most M target tokens and L vertices, of which the next D may follow a vertex. Natural logarithms.
struct DagBatch {
    Scores tokens;                       // [B,M,L] log P(y_t | v_j)
    Scores transitions;                  // [B,L,D] log E(i -> i + 1 + d), read for vertices of the graph
    const std::int64_t* target_lengths;  // [B], 0 to M
    const std::int64_t* graph_lengths;   // [B], 0 to L
    std::size_t sentences, max_tokens, max_vertices, band;
};

// An inclusive range [first, last].
struct Band {
    std::size_t first, last;
};

// One sentence. A path visits `tokens` vertices in ascending order, from the first to the last vertex of the graph, and emits a
// token at each. So token t is emitted at a vertex t <= j <= L - M + t, and no transition of a path is longer than L - M + 1, or
// than the band.
struct DagSentence {
    std::size_t tokens, vertices;  // M, L
    Scores token_scores;           // [M,L], rows `stride` apart
    Scores transition_scores;      // [L,D], rows `band` apart
    std::size_t stride, band;
    std::size_t longest_transition;  // vertices that may follow a vertex on a path

    DagSentence(const DagBatch& batch, std::size_t sentence)
        : tokens(static_cast<std::size_t>(batch.target_lengths[sentence])),
          vertices(static_cast<std::size_t>(batch.graph_lengths[sentence])),
          token_scores(batch.tokens.at(sentence * batch.max_tokens * batch.max_vertices)),
          transition_scores(batch.transitions.at(sentence * batch.max_vertices * batch.band)),
          stride(batch.max_vertices),
          band(batch.band),
          longest_transition(tokens > vertices ? 0 : std::min(band, vertices - tokens + 1)) {}

    // Return whether a path of the right length exists, whatever its score.
    bool has_path() const { return tokens >= 1 && tokens <= vertices && vertices - 1 <= (tokens - 1) * band; }
    Band emitters(std::size_t token) const {
        if (token + 1 == tokens) return {vertices - 1, vertices - 1};
        return {token, token == 0 ? 0 : vertices - tokens + token};
    }
    // The vertices that can follow a vertex; the empty range is [vertex + 1, vertex]. A path of three tokens has one vertex between
    // its ends, a path of two has no such vertex.
    Band successors(std::size_t vertex) const {
        const bool ends = tokens == 2 || (tokens == 3 && vertex > 0);
        const Band all{ends ? vertices - 1 : vertex + 1, std::min(vertices - 1, vertex + longest_transition)};
        const bool is_empty = (tokens == 2 && vertex > 0) || all.first > all.last;
        return is_empty ? Band{vertex + 1, vertex} : all;
    }
    // The vertices of `from` that a transition can lead from to one of the vertices [first, last].
    Band predecessors(Band from, std::size_t first, std::size_t last) const {
        return {std::max(from.first, first > longest_transition ? first - longest_transition : 0), std::min(from.last, last - 1)};
    }
    // The cell of a transition in the scores.
    std::size_t cell(std::size_t from, std::size_t to) const { return from * band + to - from - 1; }
    // The tokens that a vertex can emit.
    Band emitted(std::size_t vertex) const {
        const std::size_t slack = vertices - tokens;
        return {vertex > slack ? vertex - slack : 0, std::min(vertex, tokens - 1)};
    }

    // The whole lanes around the successors of a vertex.
    Band lanes(std::size_t vertex) const { return {round_down(vertex + 1), round_up(successors(vertex).last + 1) - 1}; }

    // Read row t as doubles into [width] cells, or row i into `lanes(i)`, with minus infinity outside the band. Return the maximum,
    // or NaN if a cell of the band is NaN or plus infinity.
    double read_tokens(std::size_t token, double* row, std::size_t width) const;
    double read_transitions(std::size_t vertex, double* row) const;
};

// Posteriors, in the shapes of the scores.
struct DagPosteriors {
    Results tokens, transitions;
};

// Compute log sum over paths v of prod_t P(y_t | v_t) E(v_t -> v_{t+1}) with the forward recurrence
//     alpha[0,0] = token[0,0]        alpha[t,j] = token[t,j] + log sum_{i<j} exp(alpha[t-1,i] + transition[i,j])
// as alpha[M-1,L-1]: minus infinity if no path exists, NaN if a path reads a NaN or plus infinity. `log_space`: use log space
// throughout, not only where scaled products are inaccurate.
void dag_log_likelihood(const DagBatch& batch, bool log_space, int threads, const Results& log_likelihoods);

// Compute its gradients too, the posterior probabilities of tokens at vertices and of transitions. With beta the backward
// counterpart of alpha (both include token[t,j])
//     tokens [t,j]       exp(alpha[t,j] + beta[t,j] - token[t,j] - log Z)
//     transitions [i,j]  sum_t exp(alpha[t,i] + transition[i,j] + beta[t+1,j] - log Z)
// and 0 in cells that no path reads and for sentences whose log Z is not finite.
void dag_posteriors(const DagBatch& batch, bool log_space, int threads, const Results& log_likelihoods,
                    const DagPosteriors& posteriors);

// Find the best path, with max instead of log sum exp in the recurrence. Ties go to the lowest predecessor. `vertices` [B,M] is
// padded with -1, and -1 throughout if no path exists (score minus infinity) or if a path reads a NaN or plus infinity (score NaN).
void dag_best_alignment(const DagBatch& batch, int threads, std::int64_t* vertices, const Results& scores);

}  // namespace fewstep
