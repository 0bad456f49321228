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

}  // namespace fewstep
