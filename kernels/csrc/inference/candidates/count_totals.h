// Limits and totals of the counts behind candidate tables, in the layout of run files and table files.
#pragma once

#include <cstdint>

#include "csrc/inference/candidates/length_regression.h"

namespace fewstep {

// Limits of counting. Runs with different limits cannot be merged.
struct CountLimits {
    std::uint32_t source_size = 0, target_size = 0;  // pieces of the vocabularies, at most 2^24
    std::uint32_t max_offset = 127;                  // R: links with |a - t| > R are dropped; at most 2^15 - 1
    std::uint32_t max_length = 256;                  // pairs with a longer side are skipped; at most 2^16 - 1

    bool operator==(const CountLimits&) const = default;
};

// Numbers of pairs and links by their treatment.
struct CountTotals {
    LengthSums lengths;                     // of counted pairs
    std::uint64_t empty = 0, too_long = 0;  // skipped pairs: an empty side, a side longer than max_length
    std::uint64_t linked = 0;               // counted links
    std::uint64_t unlinked = 0;             // target pieces without a link
    std::uint64_t dropped = 0;              // links with |a - t| > max_offset

    void add(const CountTotals& other) {
        lengths.add(other.lengths);
        empty += other.empty, too_long += other.too_long;
        linked += other.linked, unlinked += other.unlinked, dropped += other.dropped;
    }

    // Whether these can be totals of pairs within the limits. If they are, no sum or product of them overflows.
    bool are_possible(const CountLimits& limits) const {
        if (!lengths.are_possible(limits.max_length)) return false;
        const std::uint64_t target = lengths.target;
        return linked <= target && unlinked <= target && dropped <= target && linked + unlinked + dropped == target;
    }
};

}  // namespace fewstep
