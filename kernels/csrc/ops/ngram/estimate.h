// Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998), with the conventions of Heafield et al. (2013).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/ops/ngram/table.h"

namespace fewstep {

struct NgramOptions {
    int order = 5;
    std::vector<std::uint64_t> prune;  // by order, none smaller than the one before: n-grams seen no more often are left out
    std::optional<std::array<double, 3>> discount_fallback;  // where counts of counts give no discounts
    bool interpolate_unigrams = true;                        // with the uniform distribution; else <unk> gets its whole weight
    bool skip_special = false;                               // take special words in the text for white space
    int threads = 1;
    std::uint64_t memory = 0;  // bytes
};

// D(a): what is taken off the adjusted count a.
struct NgramDiscounts {
    std::array<double, 4> amount{};  // for a = 0, 1, 2 and 3 or more
    bool fallback = false;

    double operator()(std::uint32_t count) const { return amount[count < 3 ? count : 3]; }
};

struct NgramEstimate {
    NgramTable table;
    std::vector<NgramDiscounts> discounts;  // by order
    std::vector<std::uint64_t> distinct;    // n-grams by order, the pruned ones among them
    std::uint64_t sentences = 0, tokens = 0, skipped = 0;
};

// For a context h and a word w with c(hw) > 0, where a are adjusted counts and h' is h without its first word,
//
//     p(w | h) = (a(hw) - D(a(hw))) / sum_v a(hv)  +  b(h) p(w | h'),
//     b(h) = (sum over kept hv of D(a(hv))  +  sum over pruned hv of a(hv)) / sum_v a(hv),
//
// with p(w | h') = 1 / (words without <s>) below order 1, where <unk> has a = 0 and p(<s>) is 1. The discounts of an order are
// D(j) = j - (j + 1) n1 / (n1 + 2 n2) n(j + 1) / n(j) for j = 1, 2, 3, with n(j) n-grams of adjusted count j.
//
// Throws std::invalid_argument for options or a text that allow no estimate, std::length_error for too large a text.
// The result does not depend on `threads`.
NgramEstimate estimate_ngrams(std::string_view text, const NgramOptions& options);

}  // namespace fewstep
