// Joins the links of the two directions (Koehn, Och and Marcu 2003; Och and Ney 2003).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace fewstep {

using Link = std::pair<std::uint32_t, std::uint32_t>;  // source position, target position

enum class Symmetrisation { INTERSECT, UNION, GROW_DIAG, GROW_DIAG_FINAL, GROW_DIAG_FINAL_AND };

// intersect, union: of the sets.
// grow-diag: from the intersection, add links of the union that touch a link (8 neighbours) and whose source or target word has
//     none yet, pass after pass in (source, target) order; an addition counts at once.
// grow-diag-final: then add links of `forward`, then of `reverse`, whose source or target word has none yet.
// grow-diag-final-and: the same, where neither word has one.
// Sorted, each link once.
std::vector<Link> symmetrise(std::vector<Link> forward, std::vector<Link> reverse, Symmetrisation method);

}  // namespace fewstep
