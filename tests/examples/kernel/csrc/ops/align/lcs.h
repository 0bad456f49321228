// The longest common subsequence of two sequences of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fewstep {

// Length of the longest sequence that is a subsequence of both. With c(i, j) for the first i tokens of a and the first j of b,
//
//     c(i, 0) = c(0, j) = 0
//     c(i, j) = c(i - 1, j - 1) + 1                if a_i = b_j
//             = max(c(i - 1, j), c(i, j - 1))      otherwise
//
// Takes O(|a| |b|) time and O(|b|) memory.
std::size_t lcs_length(std::span<const std::int64_t> a, std::span<const std::int64_t> b);

}  // namespace fewstep
