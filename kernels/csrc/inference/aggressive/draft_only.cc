// A drafter without a verifier.
#include "csrc/inference/aggressive/drafters.h"
#include "csrc/inference/aggressive/sentence_state.h"

namespace fewstep {

namespace {

// The best two words of each state, those of the drafter's whole vocabulary.
void rank(const Drafter& drafter, const float* states, std::span<const std::int64_t> slots, const WordRules& words, BestWords& best, Team& team) {
    const std::vector<std::int64_t> asked(slots.size(), -1);
    const auto next = [](std::size_t row) { return row + 1; };
    best_words({drafter.vocabulary, drafter.network.narrow_vocabulary}, states, slots, asked, 2, words, next, best, team);
}

void write(Line& line, const BestWords& best, std::size_t row, std::int64_t eos) {
    line.write(best.ids[2 * row], eos, best.scores[2 * row], best.scores.data() + 2 * row);
}

// Token after token.
void write_alone(std::vector<Line>& lines, const Drafter& drafter, FeatureDrafts& writing, const WordRules& words, Team& team) {
    const std::vector<std::int64_t> nothing;
    BestWords best;
    std::vector<Next> ahead;
    std::vector<std::int64_t> slots;
    while (true) {
        ahead.clear(), slots.clear();
        for (const Line& line : lines)
            if (line.goes_on()) ahead.push_back({line.sentence, &line.tokens, &nothing}), slots.push_back(line.size());
        if (ahead.empty()) return;
        rank(drafter, writing.states(ahead), slots, words, best, team);
        for (std::size_t row = 0; row < ahead.size(); ++row) {
            Line& line = lines[ahead[row].sentence];
            write(line, best, row, words.eos);
            ++line.steps, ++line.drafted;
        }
    }
}

// Block after block.
void fill_alone(std::vector<Line>& lines, const Drafter& drafter, NetworkDrafts& drafting, const WordRules& words, Team& team) {
    BestWords best;
    std::vector<Order> orders;
    while (true) {
        orders.clear();
        for (const Line& line : lines)
            if (line.goes_on()) orders.push_back({line.sentence, &line.tokens, std::min(line.width, line.limit - line.size())});
        if (orders.empty()) return;
        const float* states = drafting.states(orders);
        rank(drafter, states, drafting.slots(), words, best, team);
        std::size_t row = 0;
        for (const Order& order : orders) {
            Line& line = lines[order.sentence];
            const std::size_t next = row + static_cast<std::size_t>(order.width);
            for (; row < next && line.goes_on(); ++row) write(line, best, row, words.eos);
            row = next;
            ++line.steps, line.drafted += order.width;
        }
    }
}

}  // namespace

Aggressive draft_only(const Transformer& verifier, const Drafter& drafter, const Sources& sources, const std::vector<std::int64_t>& limits,
                      const BeamOptions& options, const WordRules& words, const DraftRules& rules, int threads) {
    return gathered(sources, limits, options, threads, [&](const Share& share, AggressiveTimes& times) {
        Clock clock;
        std::vector<Line> lines = lines_of(share.limits, rules.width);
        const Transformer& reader = drafter.shares_encoder ? verifier : drafter.network;
        Memory memory = drafter.network.memory(share.sources, reader.encoded(share.sources, share.team).data(), share.team);
        times.drafter_encoder += clock.lap();
        if (drafter.autoregressive()) {
            FeatureDrafts writing(drafter, std::move(memory), share.limits, rules.bytes, share.team);
            write_alone(lines, drafter, writing, words, share.team);
        } else {
            NetworkDrafts drafting(drafter, share.sources, std::move(memory), share.limits, rules.bytes, share.team);
            fill_alone(lines, drafter, drafting, words, share.team);
        }
        times.drafter += clock.lap();
        return lines;
    });
}

}  // namespace fewstep
