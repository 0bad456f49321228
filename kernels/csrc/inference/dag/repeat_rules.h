// Which token would repeat what an output already holds.
#pragma once

#include <cstdint>
#include <span>

namespace fewstep {

struct RepeatRules {
    std::int64_t no_repeat_ngram = 0;        // n: no n-gram stands twice in an output; 0: any may
    std::int64_t no_consecutive_repeat = 0;  // k: none of 1 to k tokens is followed at once by itself; 0: any may

    bool any() const { return no_repeat_ngram > 0 || no_consecutive_repeat > 0; }
};

// Does `next` complete, after `tokens`, what the rules forbid?
bool repeats(const RepeatRules& rules, std::span<const std::int32_t> tokens, std::int32_t next);

}  // namespace fewstep
