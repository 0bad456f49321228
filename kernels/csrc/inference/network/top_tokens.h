// The top-k tokens of rows of logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/inference/gemm/packed_matrix.h"
#include "csrc/inference/gemm/quantized_matrix.h"

namespace fewstep {

// The tokens that must not be generated.
struct TokenRules {
    std::vector<std::int64_t> banned;  // in all slots
    std::int64_t eos = 2;
    std::int64_t min_tokens = 1;  // eos is banned in slots before this one
};

// The W most probable tokens of each row, best first, ties by token id. Missing entries have score minus infinity and token eos.
struct TopTokens {
    std::vector<float> scores;        // [rows,W]
    std::vector<std::int64_t> ids;    // [rows,W]
    std::vector<float> eos;           // [rows] log-probability of eos, minus infinity where it is banned
    std::vector<float> normalisers;   // [rows] log sum_u e^logit(u)
    std::vector<float> given_scores;  // [rows] log-probability of the given token, minus infinity if it is banned
    Buffer logits, probabilities;     // scratch for a block of rows
    QuantizedRows scratch;
};

// An output projection: a matrix, or its int8 copy if there is one. With a `subset` of the vocabulary, rules and given tokens are
// in terms of indices in the subset.
struct Vocabulary {
    const PackedMatrix& matrix;
    const QuantizedMatrix& quantized;
    std::span<const std::int64_t> subset = {};

    std::size_t num_tokens() const { return subset.empty() ? matrix.outputs() : subset.size(); }
    void logits(const float* states, std::size_t rows, float* logits, QuantizedRows& scratch, ThreadTeam& team) const {
        quantized.multiply(matrix, states, rows, logits, num_tokens(), Epilogue::STORE, scratch, team);
    }
};

// From states [rows,D], where row r predicts slot `first + r mod z`: log p(v) = logit(v) - log sum_u e^logit(u), over all tokens,
// banned ones included. With `separate_eos` eos is not among the top tokens. `row_bans` [rows] are further tokens that a row may
// not hold, without eos (empty: none). The result does not depend on the team.
void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                  std::size_t top_k, bool separate_eos, const TokenRules& rules, TopTokens& result, ThreadTeam& team,
                  std::span<const std::vector<std::int64_t>> row_bans = {});

// The same for an ensemble of N networks with their own states: log p(v) = log 1/N sum_n p_n(v).
void top_k_tokens_of_mean(std::span<const Vocabulary> vocabularies, std::span<const float* const> states, std::size_t rows,
                          std::size_t step_size, std::size_t first, std::size_t top_k, bool separate_eos, const TokenRules& rules,
                          TopTokens& result, ThreadTeam& team, std::span<const std::vector<std::int64_t>> row_bans = {});

// The same where row r predicts slot `slots[r]` and eos may be among the top tokens; `given_scores[r]` is the token whose score is
// returned too (-1: no token). After row `row`, `next(row)` is the next row to rank; the results of skipped rows are undefined.
void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::span<const std::int64_t> slots,
                  std::span<const std::int64_t> given, std::size_t top_k, const TokenRules& rules,
                  const std::function<std::size_t(std::size_t)>& next, TopTokens& result, ThreadTeam& team);

// The `top_k` most probable tokens [rows,top_k] of each row among the first `num_tokens`, best first; -1 where none is allowed. If
// `probabilities` [rows,top_k] is not empty, it receives the probabilities among these tokens, banned ones excluded. `int8`: the
// vocabulary in int8, used instead of `vocabulary` unless null.
void best_allowed_tokens(const PackedMatrix& vocabulary, const Int8Matrix* int8, const float* states,
                         std::span<const std::int64_t> slots, std::size_t num_tokens, std::size_t top_k, const TokenRules& rules,
                         std::span<std::int64_t> best, std::span<float> probabilities, Buffer& logits, ThreadTeam& team);

}  // namespace fewstep
