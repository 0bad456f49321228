#include "csrc/inference/stepwise/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/inference/network/batch_partition.h"

namespace fewstep {

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

// One hypothesis as it grows.
struct Line {
    double score = 0.0, margin = INFINITE;
    int steps = 0;
    bool ended = false;
    std::vector<std::int64_t> tokens;  // without EOS
};

// A step's words [z], their log-probabilities, and those of the words that each was preferred to.
struct Chosen {
    std::vector<std::int64_t> ids;
    std::vector<float> scores, others;

    explicit Chosen(std::size_t step_size)
        : ids(step_size), scores(step_size), others(step_size, -std::numeric_limits<float>::infinity()) {}
    // Those of a row.
    void take(const BestWords& words, std::size_t row, const JointStep* joint, std::int64_t eos) {
        const std::size_t size = ids.size(), wanted = joint != nullptr ? joint->words : 2, first = row * size;
        if (joint != nullptr)
            return joint->choose(&words.scores[first * wanted], &words.ids[first * wanted], &words.eos[first], size, eos, scores.data(), ids.data());
        for (std::size_t slot = 0; slot < size; ++slot) {
            const std::size_t best = (first + slot) * wanted;
            ids[slot] = words.ids[best], scores[slot] = words.scores[best], others[slot] = words.scores[best + 1];
        }
    }
};

// Takes a step; returns whether the line goes on.
bool extend(Line& line, const Chosen& chosen, std::int64_t limit, const StepRules& rules) {
    const auto size = static_cast<std::int64_t>(rules.step_size), before = line.steps++ * size;
    for (std::int64_t place = 0; place < size && before + place < limit; ++place) {
        const auto slot = static_cast<std::size_t>(place);
        const bool ends = chosen.ids[slot] == rules.eos;
        line.score += chosen.scores[slot];
        if (chosen.others[slot] > -INFINITE)
            line.margin = std::min(line.margin, static_cast<double>(chosen.scores[slot]) - static_cast<double>(chosen.others[slot]));
        line.ended = line.ended || ends;
        if (!ends) line.tokens.push_back(chosen.ids[slot]);
        if (ends && !rules.per_direction) break;
    }
    return !line.ended && before + size < limit;
}

Outcome outcome_of(Line&& line, const BeamOptions& options) {
    const auto tokens = static_cast<std::int64_t>(line.tokens.size()) + line.ended;
    return {{{line.score / penalty(options, tokens), std::move(line.tokens)}}, line.steps, line.margin};
}

std::vector<Outcome> greedy_share(Networks networks, const Share& share, const BeamOptions& options, const SearchRules& rules,
                                  const JointStep* joint) {
    const std::size_t size = rules.slots.step_size;
    Chosen chosen(size);
    Writing writing(networks, rules, share);
    std::vector<Line> lines(share.limits.size());
    std::vector<std::size_t> alive(lines.size());
    for (std::size_t line = 0; line < alive.size(); ++line) alive[line] = line;
    std::vector<std::int64_t> previous;
    for (std::size_t slot = 0; !alive.empty(); slot += size) {
        const BestWords& words = writing.step(previous, {slot, joint != nullptr ? joint->words : 2, joint != nullptr});
        std::vector<std::int64_t> going;
        std::vector<std::size_t> remaining;
        previous.clear();
        for (std::size_t row = 0; row < alive.size(); ++row) {
            chosen.take(words, row, joint, options.rules.eos);
            if (!extend(lines[alive[row]], chosen, share.limits[alive[row]], options.rules)) continue;
            going.push_back(static_cast<std::int64_t>(row));
            remaining.push_back(alive[row]);
            previous.insert(previous.end(), chosen.ids.begin(), chosen.ids.end());
        }
        if (going.size() < alive.size()) writing.select(going, going, std::vector<std::int64_t>(going.size(), 1));
        alive = std::move(remaining);
    }
    std::vector<Outcome> outcomes;
    for (Line& line : lines) outcomes.push_back(outcome_of(std::move(line), options));
    return outcomes;
}

std::vector<Outcome> beam_share(Networks networks, const Share& share, const BeamOptions& options, const SearchRules& rules,
                                std::size_t wanted, bool eos_apart) {
    Writing writing(networks, rules, share);
    Beam beam(options, share.limits, share.team);
    std::vector<std::int64_t> previous;
    for (std::size_t slot = 0; beam.searched() > 0; slot += rules.slots.step_size) {
        const BestWords& words = writing.step(previous, {slot, wanted, eos_apart});
        Advance next = beam.advance({words.scores.data(), words.ids.data(), words.eos.data(), static_cast<int>(wanted)});
        writing.select(next.rows, next.going, next.counts);
        previous = std::move(next.tokens);
    }
    return beam.outcomes();
}

}  // namespace

std::vector<Outcome> greedy(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                            const BeamOptions& options, const SearchRules& rules, const JointStep* joint, int threads) {
    return shared_out<Outcome>(sources, limits, threads, [&](const Share& share) { return greedy_share(networks, share, options, rules, joint); });
}

std::vector<Outcome> beam_search(Networks networks, const Sources& sources, const std::vector<std::int64_t>& limits,
                                 const BeamOptions& options, const SearchRules& rules, std::size_t wanted, bool eos_apart, int threads) {
    return shared_out<Outcome>(sources, limits, threads,
                                 [&](const Share& share) { return beam_share(networks, share, options, rules, wanted, eos_apart); });
}

}  // namespace fewstep
