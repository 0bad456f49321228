#include "csrc/inference/aggressive/sentence_state.h"

#include <algorithm>
#include <cmath>

namespace fewstep {

void SentenceState::write(std::int64_t token, std::int64_t eos, float token_score, const float* best) {
    score += token_score;
    if (best[1] > -std::numeric_limits<float>::infinity())
        margin = std::min(margin, static_cast<double>(best[0]) - static_cast<double>(best[1]));
    if (token == eos)
        ended = true;
    else
        tokens.push_back(token);
}

std::vector<SentenceState> initial_states(const std::vector<std::int64_t>& limits, std::int64_t width) {
    std::vector<SentenceState> states(limits.size());
    for (std::size_t position = 0; position < states.size(); ++position) {
        states[position].sentence = position, states[position].limit = limits[position], states[position].width = width;
        states[position].proposed_by_slot.resize(static_cast<std::size_t>(width)),
            states[position].accepted_by_slot.resize(static_cast<std::size_t>(width));
    }
    return states;
}

AggressiveOutcome outcome_of(SentenceState&& state, const BeamOptions& options) {
    const double whole = penalty(options, state.size() + state.ended);
    return {std::move(state.tokens),
            state.score / whole,
            state.margin,
            state.steps,
            state.num_drafted,
            state.num_accepted,
            state.fell_back,
            std::move(state.proposed_by_slot),
            std::move(state.accepted_by_slot)};
}

void add_times(AggressiveTimes& sum, const AggressiveTimes& times) {
    sum.encoder += times.encoder, sum.drafter_encoder += times.drafter_encoder, sum.drafter += times.drafter;
    sum.verifier += times.verifier, sum.rest += times.rest;
}

}  // namespace fewstep
