// The best words of rows of logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// Which words are out of the question, and where.
struct TokenRules {
    std::vector<std::int64_t> banned;  // everywhere
    std::int64_t eos = 2;
    std::int64_t min_tokens = 1;  // eos is banned in slots before this one
};

// The W words of highest log-probability in each of a number of slots, best first, of equals the one of lower id. Minus infinity
// where there is none that is allowed, with eos for its id.
struct TopTokens {
    std::vector<float> scores;      // [rows,W]
    std::vector<std::int64_t> ids;  // [rows,W]
    std::vector<float> eos;         // [rows] log-probability of eos, minus infinity where it is banned
    std::vector<float> normalisers;  // [rows] log sum_u e^logit(u)
    std::vector<float> given_scores;       // [rows] log-probability of the word that was asked for, minus infinity where it is banned
    Buffer logits, probabilities;          // scratch, of some rows at a time
    QuantizedRows scratch;
};

// What ranks words: a matrix, or the same in 8 bits where there is some. Some of the words only, where they are named: then rules, and
// words that are asked for, are by place among these.
struct Vocabulary {
    const PackedMatrix& matrix;
    const QuantizedMatrix& quantized;
    std::span<const std::int64_t> subset = {};

    std::size_t num_tokens() const { return subset.empty() ? matrix.outputs() : subset.size(); }
    void logits(const float* states, std::size_t rows, float* logits, QuantizedRows& scratch, ThreadTeam& team) const {
        quantized.multiply(matrix, states, rows, logits, num_tokens(), Epilogue::STORE, scratch, team);
    }
};

// From states [rows,D], of which row r predicts slot `first + r mod z`: log p(v) = logit(v) - log sum_u e^logit(u), over all words,
// the banned too. With `eos_apart` eos is not among the words. What is found does not depend on the team.
void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                std::size_t top_k, bool separate_eos, const TokenRules& rules, TopTokens& result, ThreadTeam& team);

// The same for N networks, each with its states: log p(v) = log 1/N sum_n p_n(v).
void top_k_tokens_of_mean(std::span<const Vocabulary> vocabularies, std::span<const float* const> states, std::size_t rows,
                        std::size_t step_size, std::size_t first, std::size_t top_k, bool separate_eos, const TokenRules& rules,
                        TopTokens& result, ThreadTeam& team);

// The same where row r predicts slot `slots[r]`, eos being one of the words; `asked[r]` is a word that a row is asked for besides
// (-1: none). When a row has been found `next(row)` names a later one to go on with; nothing is said of rows that are passed over.
void top_k_tokens(const Vocabulary& vocabulary, const float* states, std::span<const std::int64_t> slots,
                std::span<const std::int64_t> given_scores, std::size_t top_k, const TokenRules& rules,
                const std::function<std::size_t(std::size_t)>& next, TopTokens& result, ThreadTeam& team);

// The likeliest word of each row among the first `words`; -1 where none is allowed. With `probabilities` (else empty) also
// how likely it is among these, banned ones left out. `bytes`: the vocabulary in 8 bits, which then ranks, and
// `vocabulary` is not read; null where floats are to.
void argmax_tokens(const PackedMatrix& vocabulary, const Int8Matrix* bytes, const float* states, std::span<const std::int64_t> slots, std::size_t num_tokens,
                     const TokenRules& rules, std::span<std::int64_t> argmax, std::span<float> probabilities, Buffer& logits, ThreadTeam& team);

}  // namespace fewstep
