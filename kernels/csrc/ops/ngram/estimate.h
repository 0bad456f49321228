// Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998), with the conventions of Heafield et al. (2013).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/ops/ngram/runs.h"
#include "csrc/ops/ngram/table.h"

namespace fewstep {

struct NgramOptions {
    int order = 5;
    std::vector<std::uint64_t> prune;  // by order, non-decreasing: n-grams with at most this many occurrences are pruned
    std::optional<std::array<double, 3>> discount_fallback;  // used if counts of counts give no valid discounts
    bool interpolate_unigrams = true;  // with the uniform distribution; else <unk> gets the whole back-off weight
    bool skip_special = false;         // skip special words in the text
    int threads = 1;
    std::uint64_t memory = 0;  // bytes
};

// D(a): the discount of the adjusted count a.
struct NgramDiscounts {
    std::array<double, 4> amount{};  // for a = 0, 1, 2 and 3 or more
    bool fallback = false;

    double operator()(std::uint32_t count) const { return amount[count < 3 ? count : 3]; }
};

struct NgramEstimate {
    NgramTable table;
    std::vector<NgramDiscounts> discounts;  // by order
    std::vector<std::uint64_t> distinct;    // by order: distinct n-grams, pruned ones included
    std::uint64_t sentences = 0, tokens = 0, skipped = 0;
};

// For a context h and a word w with c(hw) > 0, adjusted counts a, and h' = h without its first word,
//     p(w | h) = (a(hw) - D(a(hw))) / sum_v a(hv)  +  b(h) p(w | h'),
//     b(h) = (sum over kept hv of D(a(hv))  +  sum over pruned hv of a(hv)) / sum_v a(hv),
// where p(w | h') = 1 / (words without <s>) below order 1, a(<unk>) = 0 and p(<s>) = 1. The discounts of an order are D(j) = j - (j
// + 1) n1 / (n1 + 2 n2) n(j + 1) / n(j) for j = 1, 2, 3, with n(j) n-grams of adjusted count j.
// Throws std::invalid_argument for invalid options or an unsuitable text, std::length_error for too large a text. The result does
// not depend on `threads`.
NgramEstimate estimate_ngrams(std::string_view text, const NgramOptions& options);

// Return the same estimate of a text whose parts were counted. `options.order` is that of the counts; `options.skip_special` has no
// effect. Throws as above, std::runtime_error for counts that are not those of a whole text, FileError.
NgramEstimate estimate_ngrams(const NgramRuns& runs, const NgramOptions& options);

}  // namespace fewstep
