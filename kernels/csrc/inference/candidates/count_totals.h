// The limits and totals of the counts behind candidate tables, as run files and table files store them.
#pragma once

#include <cstdint>

#include "csrc/inference/candidates/length_regression.h"

namespace fewstep {

// What is counted. Runs of different limits cannot be merged.
struct CountLimits {
    std::uint32_t source_size = 0, target_size = 0;  // pieces of each vocabulary, at most 2^24
    std::uint32_t max_offset = 127;                  // R: a link with |a - t| > R is dropped; at most 2^15 - 1
    std::uint32_t max_length = 256;                  // pairs with a longer side are left out; at most 2^16 - 1

    bool operator==(const CountLimits&) const = default;
};

// What became of the pairs and of the links.
struct CountTotals {
    LengthSums lengths;                     // of the pairs that were counted
    std::uint64_t empty = 0, too_long = 0;  // pairs left out: a side without pieces, a side longer than max_length
    std::uint64_t linked = 0;               // links counted
    std::uint64_t unlinked = 0;             // target pieces without a link
    std::uint64_t dropped = 0;              // links with too large an offset, in neither table

    void add(const CountTotals& other) {
        lengths.add(other.lengths);
        empty += other.empty, too_long += other.too_long;
        linked += other.linked, unlinked += other.unlinked, dropped += other.dropped;
    }
};

}  // namespace fewstep
