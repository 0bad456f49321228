// Partition of a batch among threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The sentences that one thread decodes: every n-th. With a single part all threads share its work.
struct BatchPart {
    Sources sources;
    std::vector<std::int64_t> limits;
    std::vector<std::size_t> indices;
    ThreadTeam& team;  // threads that share the work of this part
};

// Call search(part) -> results for the parts of all threads and return the results in the order of the sentences.
template <typename Result, typename Search>
std::vector<Result> map_batch_parts(const Sources& sources, const std::vector<std::int64_t>& limits, int threads,
                                    const Search& search) {
    const std::size_t sentences = limits.size(), num_parts = std::min(sentences, static_cast<std::size_t>(threads));
    std::vector<Result> outcomes(sentences);
    parallel_for(static_cast<std::int64_t>(num_parts), threads, [&](std::int64_t first, int) {
        BatchPart part{{sources.ids, sources.stride, {}, {}},
                       {},
                       {},
                       num_parts == 1 ? ThreadTeam::for_this_thread(threads) : ThreadTeam::single()};
        for (auto sentence = static_cast<std::size_t>(first); sentence < sentences; sentence += num_parts) {
            part.sources.lengths.push_back(sources.lengths[sentence]);
            part.sources.rows.push_back(sources.rows[sentence]);
            part.limits.push_back(limits[sentence]);
            part.indices.push_back(sentence);
        }
        std::vector<Result> part_outcomes = search(part);
        for (std::size_t position = 0; position < part_outcomes.size(); ++position)
            outcomes[part.indices[position]] = std::move(part_outcomes[position]);
    });
    return outcomes;
}

// Call use(group sources, team) for groups of consecutive sentences, which share passes over the weights, from any of the threads.
// With a single group all threads share its work.
template <typename Use>
void for_each_group(const Sources& sources, int threads, const Use& use) {
    constexpr std::size_t MAX_GROUP_SIZE = 8;
    const std::size_t sentences = sources.rows.size(), num_parts = static_cast<std::size_t>(threads);
    const std::size_t group_size = std::clamp<std::size_t>((sentences + num_parts - 1) / num_parts, 1, MAX_GROUP_SIZE);
    const std::size_t groups = (sentences + group_size - 1) / group_size;
    ThreadTeam& team = ThreadTeam::for_this_thread(threads);
    team.run(groups, [&](std::size_t group, int) {
        const auto first = static_cast<std::ptrdiff_t>(group * group_size);
        const auto end = std::min(first + static_cast<std::ptrdiff_t>(group_size), static_cast<std::ptrdiff_t>(sentences));
        const Sources part{sources.ids,
                           sources.stride,
                           {sources.lengths.begin() + first, sources.lengths.begin() + end},
                           {sources.rows.begin() + first, sources.rows.begin() + end}};
        use(part, groups == 1 ? team : ThreadTeam::single());
    });
}

}  // namespace fewstep
