#include "csrc/inference/dag/candidates.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace fewstep {

void valid_candidates(const DagCandidates& all, std::int64_t vertex, std::int64_t max_count, std::vector<DagCandidate>& valid) {
    valid.clear();
    const std::int64_t row = vertex * all.width, last = all.vertices - 1;
    for (std::int64_t at = row; at < row + all.width; ++at) {
        const float score = all.scores[at];
        const std::int64_t next = all.next_vertices[at], token = all.token_ids[at];
        if (!(score >= -DAG_MAX_SCORE && score <= DAG_MAX_SCORE) || next <= vertex || next > last || token < 0) continue;
        if (token >= all.vocabulary && next != last) {
            throw std::invalid_argument("token_ids: expected ids below " + std::to_string(all.vocabulary) + ", got " +
                                        std::to_string(token) + " at vertex " + std::to_string(vertex));
        }
        valid.push_back({score, static_cast<std::int32_t>(next), next == last ? -1 : static_cast<std::int32_t>(token)});
    }
    const auto better = [](const DagCandidate& one, const DagCandidate& other) { return one.score > other.score; };
    if (!std::is_sorted(valid.begin(), valid.end(), better)) std::stable_sort(valid.begin(), valid.end(), better);
    if (static_cast<std::int64_t>(valid.size()) > max_count) valid.resize(static_cast<std::size_t>(max_count));
}

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
