#include "csrc/inference/dag/repeat_rules.h"

#include <algorithm>

namespace fewstep {

namespace {

// Return whether the `count` tokens before position `end` equal the last `count` tokens.
bool suffix_matches(std::span<const std::int32_t> tokens, std::size_t end, std::size_t count) {
    return std::equal(tokens.end() - static_cast<std::ptrdiff_t>(count), tokens.end(),
                      tokens.begin() + static_cast<std::ptrdiff_t>(end - count));
}

}  // namespace

bool repeats(const RepeatRules& rules, std::span<const std::int32_t> tokens, std::int32_t next) {
    const std::size_t size = tokens.size();
    const auto ngram = static_cast<std::size_t>(rules.no_repeat_ngram),
               longest = static_cast<std::size_t>(rules.no_consecutive_repeat);
    for (std::size_t at = size; at-- > 0;) {
        if (tokens[at] != next) continue;
        const std::size_t distance = size - at;  // from the earlier occurrence to the position of `next`
        if (distance <= longest && at + 1 >= distance && suffix_matches(tokens, at, distance - 1)) return true;
        if (ngram > 0 && at + 1 >= ngram && suffix_matches(tokens, at, ngram - 1)) return true;
    }
    return false;
}

}  // namespace fewstep
