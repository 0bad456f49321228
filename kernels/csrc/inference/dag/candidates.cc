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

}  // namespace fewstep
