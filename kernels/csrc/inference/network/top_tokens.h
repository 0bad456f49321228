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
struct WordRules {
    std::vector<std::int64_t> banned;  // everywhere
    std::int64_t eos = 2;
    std::int64_t min_tokens = 1;  // eos is banned in slots before this one
};

// The W words of highest log-probability in each of a number of slots, best first, of equals the one of lower id. Minus infinity
// where there is none that is allowed, with eos for its id.
struct BestWords {
    std::vector<float> scores;      // [rows,W]
    std::vector<std::int64_t> ids;  // [rows,W]
    std::vector<float> eos;         // [rows] log-probability of eos, minus infinity where it is banned
    std::vector<float> normalisers;  // [rows] log sum_u e^logit(u)
    std::vector<float> asked;       // [rows] log-probability of the word that was asked for, minus infinity where it is banned
    Buffer logits, shares;          // scratch, of some rows at a time
    NarrowRows narrowed;
};

// What ranks words: a matrix, or the same in 8 bits where there is some. Some of the words only, where they are named: then rules, and
// words that are asked for, are by place among these.
struct Vocabulary {
    const PackedMatrix& whole;
    const NarrowMatrix& narrow;
    std::span<const std::int64_t> some = {};

    std::size_t words() const { return some.empty() ? whole.outputs() : some.size(); }
    void logits(const float* states, std::size_t rows, float* logits, NarrowRows& scratch, Team& team) const {
        narrow.multiply(whole, states, rows, logits, words(), Then::STORE, scratch, team);
    }
};

// From states [rows,D], of which row r predicts slot `first + r mod z`: log p(v) = logit(v) - log sum_u e^logit(u), over all words,
// the banned too. With `eos_apart` eos is not among the words. What is found does not depend on the team.
void best_words(const Vocabulary& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                std::size_t wanted, bool eos_apart, const WordRules& rules, BestWords& found, Team& team);

// The same for N networks, each with its states: log p(v) = log 1/N sum_n p_n(v).
void best_words_of_mean(std::span<const Vocabulary> vocabularies, std::span<const float* const> states, std::size_t rows,
                        std::size_t step_size, std::size_t first, std::size_t wanted, bool eos_apart, const WordRules& rules,
                        BestWords& found, Team& team);

// The same where row r predicts slot `slots[r]`, eos being one of the words; `asked[r]` is a word that a row is asked for besides
// (-1: none). When a row has been found `next(row)` names a later one to go on with; nothing is said of rows that are passed over.
void best_words(const Vocabulary& vocabulary, const float* states, std::span<const std::int64_t> slots,
                std::span<const std::int64_t> asked, std::size_t wanted, const WordRules& rules,
                const std::function<std::size_t(std::size_t)>& next, BestWords& found, Team& team);

// The likeliest word of each row among the first `words`; -1 where none is allowed. With `probabilities` (else empty) also
// how likely it is among these, banned ones left out. `bytes`: the vocabulary in 8 bits, which then ranks, and
// `vocabulary` is not read; null where floats are to.
void likeliest_words(const PackedMatrix& vocabulary, const ByteMatrix* bytes, const float* states, std::span<const std::int64_t> slots, std::size_t words,
                     const WordRules& rules, std::span<std::int64_t> likeliest, std::span<float> probabilities, Buffer& logits, Team& team);

}  // namespace fewstep
