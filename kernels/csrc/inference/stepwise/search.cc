#include "csrc/inference/stepwise/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/inference/network/batch_partition.h"

namespace fewstep {

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

// A greedy hypothesis.
struct Hypothesis {
    double score = 0.0, margin = INFINITE;
    int steps = 0;
    bool ended = false;
    std::vector<std::int64_t> tokens;  // without EOS
};

// The tokens [z] of a step, their log-probabilities, and those of the runners-up.
struct StepChoice {
    std::vector<std::int64_t> ids;
    std::vector<float> scores, runner_up_scores;

    explicit StepChoice(std::size_t step_size)
        : ids(step_size), scores(step_size), runner_up_scores(step_size, -std::numeric_limits<float>::infinity()) {}
    // Choose the tokens of a row.
    void choose(const TopTokens& top_tokens, std::size_t row, const JointStep* joint, std::int64_t eos) {
        const std::size_t size = ids.size(), top_k = joint != nullptr ? joint->num_candidates : 2, first = row * size;
        if (joint != nullptr)
            return joint->choose(&top_tokens.scores[first * top_k], &top_tokens.ids[first * top_k], &top_tokens.eos[first], size,
                                 eos, scores.data(), ids.data());
        for (std::size_t slot = 0; slot < size; ++slot) {
            const std::size_t best = (first + slot) * top_k;
            ids[slot] = top_tokens.ids[best], scores[slot] = top_tokens.scores[best],
            runner_up_scores[slot] = top_tokens.scores[best + 1];
        }
    }
};

// Append a step and return whether the hypothesis continues.
bool append_step(Hypothesis& hypothesis, const StepChoice& choice, std::int64_t limit, const StepRules& rules) {
    const auto size = static_cast<std::int64_t>(rules.step_size), num_slots_before = hypothesis.steps++ * size;
    for (std::int64_t position = 0; position < size && num_slots_before + position < limit; ++position) {
        const auto slot = static_cast<std::size_t>(position);
        const bool ends = choice.ids[slot] == rules.eos;
        hypothesis.score += choice.scores[slot];
        if (choice.runner_up_scores[slot] > -INFINITE)
            hypothesis.margin = std::min(
                hypothesis.margin, static_cast<double>(choice.scores[slot]) - static_cast<double>(choice.runner_up_scores[slot]));
        hypothesis.ended = hypothesis.ended || ends;
        if (!ends) hypothesis.tokens.push_back(choice.ids[slot]);
        if (ends && !rules.per_direction) break;
    }
    return !hypothesis.ended && num_slots_before + size < limit;
}

Outcome to_outcome(Hypothesis&& hypothesis, const BeamOptions& options) {
    const auto tokens = static_cast<std::int64_t>(hypothesis.tokens.size()) + hypothesis.ended;
    return {{{hypothesis.score / penalty(options, tokens), std::move(hypothesis.tokens)}}, hypothesis.steps, hypothesis.margin};
}

std::vector<Outcome> greedy_part(Networks networks, const BatchPart& share, const BeamOptions& options, const SearchRules& rules,
                                 const JointStep* joint) {
    const std::size_t size = rules.slots.step_size;
    StepChoice choice(size);
    Ensemble ensemble(networks, rules, share);
    std::vector<Hypothesis> hypotheses(share.limits.size());
    std::vector<std::size_t> alive(hypotheses.size());
    for (std::size_t hypothesis = 0; hypothesis < alive.size(); ++hypothesis) alive[hypothesis] = hypothesis;
    std::vector<std::int64_t> previous;
    for (std::size_t slot = 0; !alive.empty(); slot += size) {
        const TopTokens& top_tokens =
            ensemble.step(previous, {slot, joint != nullptr ? joint->num_candidates : 2, joint != nullptr});
        std::vector<std::int64_t> active;
        std::vector<std::size_t> remaining_hypotheses;
        previous.clear();
        for (std::size_t row = 0; row < alive.size(); ++row) {
            choice.choose(top_tokens, row, joint, options.rules.eos);
            if (!append_step(hypotheses[alive[row]], choice, share.limits[alive[row]], options.rules)) continue;
            active.push_back(static_cast<std::int64_t>(row));
            remaining_hypotheses.push_back(alive[row]);
            previous.insert(previous.end(), choice.ids.begin(), choice.ids.end());
        }
        if (active.size() < alive.size()) ensemble.select(active, active, std::vector<std::int64_t>(active.size(), 1));
        alive = std::move(remaining_hypotheses);
    }
    std::vector<Outcome> outcomes;
    for (Hypothesis& hypothesis : hypotheses) outcomes.push_back(to_outcome(std::move(hypothesis), options));
    return outcomes;
}

std::vector<Outcome> beam_part(Networks networks, const BatchPart& share, const BeamOptions& options, const SearchRules& rules,
                               std::size_t top_k, bool separate_eos) {
    Ensemble ensemble(networks, rules, share);
    Beam beam(options, share.limits, share.team);
    std::vector<std::int64_t> previous;
    for (std::size_t slot = 0; beam.num_active() > 0; slot += rules.slots.step_size) {
        const TopTokens& top_tokens = ensemble.step(previous, {slot, top_k, separate_eos});
        Advance next =
            beam.advance({top_tokens.scores.data(), top_tokens.ids.data(), top_tokens.eos.data(), static_cast<int>(top_k)});
        ensemble.select(next.rows, next.active, next.counts);
        previous = std::move(next.tokens);
    }
    return beam.outcomes();
}

}  // namespace

std::vector<Outcome> greedy(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                            const BeamOptions& options, const SearchRules& rules, const JointStep* joint, int threads) {
    return map_batch_parts<Outcome>(sources, limits, threads,
                                    [&](const BatchPart& share) { return greedy_part(networks, share, options, rules, joint); });
}

std::vector<Outcome> beam_search(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                                 const BeamOptions& options, const SearchRules& rules, std::size_t top_k, bool separate_eos,
                                 int threads) {
    return map_batch_parts<Outcome>(sources, limits, threads, [&](const BatchPart& share) {
        return beam_part(networks, share, options, rules, top_k, separate_eos);
    });
}

}  // namespace fewstep
