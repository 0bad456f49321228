// Symmetrization of the alignments of both directions (Koehn, Och and Marcu 2003; Och and Ney 2003).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fewstep {

using Link = std::pair<std::uint32_t, std::uint32_t>;  // source position, target position

inline constexpr std::uint32_t MAX_POSITION = 1u << 24;

enum class Symmetrisation { INTERSECT, UNION, GROW_DIAG, GROW_DIAG_FINAL, GROW_DIAG_FINAL_AND };

// intersect, union: set operations.
// grow-diag: start from the intersection and add links of the union that have one of 8 neighbours linked and whose source or target
// word is
//     unlinked, in (source, target) order until nothing changes; an added link counts immediately.
// grow-diag-final: then add links of `forward`, then of `reverse`, whose source or target word is unlinked.
// grow-diag-final-and: the same, if both words are unlinked.
// The result is sorted, without duplicates. Throws std::invalid_argument for a position of MAX_POSITION or more.
std::vector<Link> symmetrise(std::vector<Link> forward, std::vector<Link> reverse, Symmetrisation method);

}  // namespace fewstep
