#include "csrc/inference/dag/candidates.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace fewstep {

void possible_candidates(const DagCandidates& all, std::int64_t vertex, std::int64_t limit, std::vector<DagCandidate>& possible) {
    possible.clear();
    const std::int64_t row = vertex * all.width, last = all.vertices - 1;
    for (std::int64_t at = row; at < row + all.width; ++at) {
        const float score = all.scores[at];
        const std::int64_t next = all.next_vertices[at], token = all.token_ids[at];
        if (!(score >= -DAG_MOST_SCORE && score <= DAG_MOST_SCORE) || next <= vertex || next > last || token < 0) continue;
        if (token >= all.vocabulary && next != last) {
            throw std::invalid_argument("token_ids: expected ids below " + std::to_string(all.vocabulary) + ", got " +
                                        std::to_string(token) + " at vertex " + std::to_string(vertex));
        }
        possible.push_back({score, static_cast<std::int32_t>(next), next == last ? -1 : static_cast<std::int32_t>(token)});
    }
    const auto better = [](const DagCandidate& one, const DagCandidate& other) { return one.score > other.score; };
    if (!std::is_sorted(possible.begin(), possible.end(), better)) std::stable_sort(possible.begin(), possible.end(), better);
    if (static_cast<std::int64_t>(possible.size()) > limit) possible.resize(static_cast<std::size_t>(limit));
}

}  // namespace fewstep
