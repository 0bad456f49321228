// Decoding with a drafter alone.
#include "csrc/inference/aggressive/drafters.h"
#include "csrc/inference/aggressive/sentence_state.h"

namespace fewstep {

namespace {

// The two best tokens of each state over the drafter's whole vocabulary.
void rank(const Drafter& drafter, const float* hidden, std::span<const std::int64_t> slots, const TokenRules& token_rules,
          TopTokens& best, ThreadTeam& team) {
    const std::vector<std::int64_t> given(slots.size(), -1);
    const auto next = [](std::size_t row) { return row + 1; };
    top_k_tokens({drafter.vocabulary, drafter.network.quantized_vocabulary}, hidden, slots, given, 2, token_rules, next, best,
                 team);
}

void write(SentenceState& state, const TopTokens& best, std::size_t row, std::int64_t eos) {
    state.write(best.ids[2 * row], eos, best.scores[2 * row], best.scores.data() + 2 * row);
}

// Decode token by token.
void decode_autoregressively(std::vector<SentenceState>& states, const Drafter& drafter,
                             AutoregressiveDrafter& autoregressive_drafter, const TokenRules& token_rules, ThreadTeam& team) {
    const std::vector<std::int64_t> no_draft;
    TopTokens best;
    std::vector<DraftPosition> positions;
    std::vector<std::int64_t> slots;
    while (true) {
        positions.clear(), slots.clear();
        for (const SentenceState& state : states)
            if (state.unfinished()) positions.push_back({state.sentence, &state.tokens, &no_draft}), slots.push_back(state.size());
        if (positions.empty()) return;
        rank(drafter, autoregressive_drafter.states(positions), slots, token_rules, best, team);
        for (std::size_t row = 0; row < positions.size(); ++row) {
            SentenceState& state = states[positions[row].sentence];
            write(state, best, row, token_rules.eos);
            ++state.steps, ++state.num_drafted;
        }
    }
}

// Decode block by block.
void decode_blocks(std::vector<SentenceState>& states, const Drafter& drafter, BlockDrafter& block_drafter,
                   const TokenRules& token_rules, ThreadTeam& team) {
    TopTokens best;
    std::vector<DraftRequest> requests;
    while (true) {
        requests.clear();
        for (const SentenceState& state : states)
            if (state.unfinished())
                requests.push_back({state.sentence, &state.tokens, std::min(state.width, state.limit - state.size())});
        if (requests.empty()) return;
        const float* hidden = block_drafter.states(requests);
        rank(drafter, hidden, block_drafter.slots(), token_rules, best, team);
        std::size_t row = 0;
        for (const DraftRequest& request : requests) {
            SentenceState& state = states[request.sentence];
            const std::size_t next = row + static_cast<std::size_t>(request.width);
            for (; row < next && state.unfinished(); ++row) write(state, best, row, token_rules.eos);
            row = next;
            ++state.steps, state.num_drafted += request.width;
        }
    }
}

}  // namespace

Aggressive draft_only(const Transformer& verifier, const Drafter& drafter, const Sources& sources,
                      const std::vector<std::int64_t>& limits, const BeamOptions& options, const TokenRules& token_rules,
                      const DraftRules& rules, int threads) {
    return run_batch(sources, limits, options, threads, [&](const BatchPart& part, AggressiveTimes& times) {
        Clock clock;
        std::vector<SentenceState> states = initial_states(part.limits, rules.width);
        const Transformer& reader = drafter.shares_encoder ? verifier : drafter.network;
        CrossCache cross_cache =
            drafter.network.cross_cache(part.sources, reader.encoder_states(part.sources, part.team).data(), part.team);
        times.drafter_encoder += clock.lap();
        if (drafter.autoregressive()) {
            AutoregressiveDrafter autoregressive_drafter(drafter, std::move(cross_cache), part.limits, rules.int8, part.team);
            decode_autoregressively(states, drafter, autoregressive_drafter, token_rules, part.team);
        } else {
            BlockDrafter block_drafter(drafter, part.sources, std::move(cross_cache), part.limits, rules.int8, part.team);
            decode_blocks(states, drafter, block_drafter, token_rules, part.team);
        }
        times.drafter += clock.lap();
        return states;
    });
}

}  // namespace fewstep
