// Candidates for the next step of a search over a DAG.
#pragma once

#include <cstdint>
#include <span>
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

// Rules against repeated tokens and n-grams in an output.

struct RepeatRules {
    std::int64_t no_repeat_ngram = 0;        // n: no n-gram occurs twice in an output; 0: no limit
    std::int64_t no_consecutive_repeat = 0;  // k: no phrase of 1 to k tokens is repeated immediately; 0: no limit

    bool any() const { return no_repeat_ngram > 0 || no_consecutive_repeat > 0; }
};

// Return whether appending `next` to `tokens` violates the rules.
bool repeats(const RepeatRules& rules, std::span<const std::int32_t> tokens, std::int32_t next);

}  // namespace fewstep
