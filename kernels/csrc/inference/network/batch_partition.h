// Sentences shared out among threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/base/parallel.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// What a thread decodes: every n-th sentence. The threads share out the work of a single one.
struct Share {
    Sources sources;
    std::vector<std::int64_t> limits;
    std::vector<std::size_t> places;
    Team& team;  // that helps
};

// Calls search(share) -> outcomes for the shares of all threads, and puts outcomes where they belong.
template <typename Found, typename Search>
std::vector<Found> shared_out(const Sources& sources, const std::vector<std::int64_t>& limits, int threads, const Search& search) {
    const std::size_t sentences = limits.size(), shares = std::min(sentences, static_cast<std::size_t>(threads));
    std::vector<Found> outcomes(sentences);
    parallel_for(static_cast<std::int64_t>(shares), threads, [&](std::int64_t first, int) {
        Share share{{sources.ids, sources.stride, {}, {}}, {}, {}, shares == 1 ? Team::waiting(threads) : Team::alone()};
        for (auto sentence = static_cast<std::size_t>(first); sentence < sentences; sentence += shares) {
            share.sources.lengths.push_back(sources.lengths[sentence]);
            share.sources.rows.push_back(sources.rows[sentence]);
            share.limits.push_back(limits[sentence]);
            share.places.push_back(sentence);
        }
        std::vector<Found> found = search(share);
        for (std::size_t place = 0; place < found.size(); ++place) outcomes[share.places[place]] = std::move(found[place]);
    });
    return outcomes;
}

}  // namespace fewstep
