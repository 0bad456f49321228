// The state of a sentence in a search with drafts, and the time of its parts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "csrc/inference/aggressive/decoding.h"
#include "csrc/inference/aggressive/draft_tree.h"
#include "csrc/inference/network/batch_partition.h"

namespace fewstep {

class Clock {
  public:
    // Return the seconds since the last call.
    double lap() {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        last_ = now;
        return seconds;
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// The state of one sentence.
struct SentenceState {
    std::size_t sentence;
    std::int64_t limit, width;
    double score = 0.0, margin = std::numeric_limits<double>::infinity();
    std::int64_t steps = 0, blocks = 0, tokens_from_blocks = 0, num_drafted = 0, num_accepted = 0;
    bool ended = false, fell_back = false;
    std::vector<std::int64_t> tokens;
    DraftTree draft;
    std::vector<std::int64_t> guess;  // of JACOBI: the verifier's own tokens after the output, given the last draft
    std::vector<std::int64_t> proposed_by_slot, accepted_by_slot;

    std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
    bool unfinished() const { return !ended && size() < limit; }
    // Append a token with its score; `best` are the scores of the two best tokens.
    void write(std::int64_t token, std::int64_t eos, float token_score, const float* best);
};

// Initial states of the sentences of a part, with blocks of this width.
std::vector<SentenceState> initial_states(const std::vector<std::int64_t>& limits, std::int64_t width);

AggressiveOutcome outcome_of(SentenceState&& state, const BeamOptions& options);

void add_times(AggressiveTimes& sum, const AggressiveTimes& times);

// Call find(part, times) -> states for the parts of all threads.
template <typename Find>
Aggressive run_batch(const Sources& sources, const std::vector<std::int64_t>& limits, const BeamOptions& options, int threads,
                     const Find& find) {
    Aggressive result;
    std::mutex adding;
    result.outcomes = map_batch_parts<AggressiveOutcome>(sources, limits, threads, [&](const BatchPart& part) {
        AggressiveTimes times;
        std::vector<AggressiveOutcome> outcomes;
        for (SentenceState& state : find(part, times)) outcomes.push_back(outcome_of(std::move(state), options));
        const std::lock_guard<std::mutex> guard(adding);
        add_times(result.times, times);
        return outcomes;
    });
    return result;
}

}  // namespace fewstep
