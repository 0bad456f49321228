// Rules against repeated tokens and n-grams in an output.
#pragma once

#include <cstdint>
#include <span>

namespace fewstep {

struct RepeatRules {
    std::int64_t no_repeat_ngram = 0;        // n: no n-gram occurs twice in an output; 0: no limit
    std::int64_t no_consecutive_repeat = 0;  // k: no phrase of 1 to k tokens is repeated immediately; 0: no limit

    bool any() const { return no_repeat_ngram > 0 || no_consecutive_repeat > 0; }
};

// Return whether appending `next` to `tokens` violates the rules.
bool repeats(const RepeatRules& rules, std::span<const std::int32_t> tokens, std::int32_t next);

}  // namespace fewstep
