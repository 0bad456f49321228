// The threshold that selects the top k of a list without sorting it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace fewstep {

// An integer of the same order as the score.
inline std::int32_t ordered_key(float score) {
    const auto bits = std::bit_cast<std::int32_t>(score);
    return bits ^ (bits >> 31 & 0x7fffffff);
}

struct TopKThreshold {
    std::int32_t key;     // the top k have this key or a larger one,
    std::int64_t excess;  // and this many more elements do
};

// Return the largest such key; 1 <= count <= number of keys. Bisects the range of keys; each step counts, without branches, the
// keys above its middle.
inline TopKThreshold top_k_threshold(std::span<const std::int32_t> keys, std::int64_t count) {
    const auto [lowest, highest] = std::ranges::minmax(keys);
    std::int64_t low = lowest, high = highest;
    auto found = static_cast<std::int64_t>(keys.size());
    while (low < high && found > count) {
        const std::int64_t middle = low + (high - low + 1) / 2;
        const auto bound = static_cast<std::int32_t>(middle);
        std::int32_t above = 0;
        for (const std::int32_t key : keys) above += key >= bound;
        if (above >= count) {
            low = middle;
            found = above;
        } else {
            high = middle - 1;
        }
    }
    return {static_cast<std::int32_t>(low), found - count};
}

}  // namespace fewstep
