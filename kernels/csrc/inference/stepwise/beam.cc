#include "csrc/inference/stepwise/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fewstep {

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

}  // namespace

double penalty(const BeamOptions& options, std::int64_t tokens) {
    const auto length = static_cast<double>(tokens);
    return std::pow(options.gnmt ? (5.0 + length) / 6.0 : length, options.alpha);
}

Beam::Beam(const BeamOptions& options, const std::vector<std::int64_t>& limits, Team& team)
    : options_(options), team_(&team), outcomes_(limits.size()) {
    for (std::size_t index = 0; index < limits.size(); ++index)
        alive_.push_back({index, limits[index], {0.0}, {}, 0, -INFINITE, INFINITE, {}});
}

std::size_t Beam::rows() const {
    std::size_t rows = 0;
    for (const Sentence& sentence : alive_) rows += sentence.live.size();
    return rows;
}

Advance Beam::advance(const SlotWords& words) {
    const auto slots = static_cast<std::size_t>(options_.rules.step_size), hypothesis = slots * static_cast<std::size_t>(words.words);
    ++steps_;
    Advance next;
    std::vector<Sentence> going;
    std::size_t first = 0, behind = 0;
    for (std::size_t place = 0; place < alive_.size(); ++place, first = behind) {
        Sentence& sentence = alive_[place];
        behind = first + sentence.live.size();
        step(sentence, {words.scores + first * hypothesis, words.ids + first * hypothesis, words.eos + first * slots, words.words});
        if (done(sentence)) {
            collect(sentence);
            continue;
        }
        next.going.push_back(static_cast<std::int64_t>(place));
        next.counts.push_back(static_cast<std::int64_t>(sentence.live.size()));
        for (const Continuation& one : sentence.history.back()) {
            next.rows.push_back(static_cast<std::int64_t>(first) + one.parent);
            next.tokens.insert(next.tokens.end(), one.tokens.begin(), one.tokens.end());
        }
        going.push_back(std::move(sentence));
    }
    alive_ = std::move(going);
    return next;
}

void Beam::step(Sentence& sentence, const SlotWords& words) {
    const auto beams = static_cast<std::size_t>(options_.rules.beams);
    const std::int64_t before = std::int64_t{steps_ - 1} * options_.rules.step_size;
    Ranked ranked = select(options_.rules, words, sentence.live, sentence.limit - before, *team_);
    if (sentence.limit <= before + options_.rules.step_size)
        for (Continuation& one : ranked.all) one.ends = true;
    for (std::size_t rank = 0; rank < std::min(beams, ranked.all.size()); ++rank)
        if (ranked.all[rank].ends) finish(sentence, ranked.all[rank]);
    const double least = std::max(sentence.best, ranked.all.empty() ? -INFINITE : ranked.all[0].score) - options_.prune;
    sentence.history.emplace_back();
    sentence.live.clear();
    for (std::size_t rank = 0; rank < std::min(beams, ranked.living.size()) && ranked.living[rank].score >= least; ++rank) {
        sentence.history.back().push_back(ranked.living[rank]);
        sentence.live.push_back(ranked.living[rank].score);
    }
    look_at_gaps(sentence, ranked, least);
}

// The smallest gap between kept and dropped: what ends against the border of the first K, and, unless the sentence is done, the
// last that lives on against the next, and each of the first K against the least that may live on.
void Beam::look_at_gaps(Sentence& sentence, const Ranked& ranked, double least) const {
    const auto beams = static_cast<std::size_t>(options_.rules.beams);
    for (std::size_t rank = 0; rank < std::min(beams, ranked.living.size()); ++rank)
        sentence.margin = std::min(sentence.margin, std::abs(ranked.living[rank].score - least));
    const auto& all = ranked.all;
    if (all.size() > beams) {
        for (std::size_t rank = 0; rank < beams; ++rank)
            if (all[rank].ends) sentence.margin = std::min(sentence.margin, all[rank].score - all[beams].score);
        for (std::size_t rank = beams; rank < all.size(); ++rank)
            if (all[rank].ends) sentence.margin = std::min(sentence.margin, all[beams - 1].score - all[rank].score);
    }
    if (ranked.living.size() > beams && sentence.live.size() == beams && !done(sentence))
        sentence.margin = std::min(sentence.margin, ranked.living[beams - 1].score - ranked.living[beams].score);
}

void Beam::finish(Sentence& sentence, const Continuation& one) {
    const StepRules& rules = options_.rules;
    std::vector<const Continuation*> path{&one};
    for (std::size_t past = sentence.history.size(); past-- > 0;)
        path.push_back(&sentence.history[past][static_cast<std::size_t>(path.back()->parent)]);
    Finished found{0.0, {}};
    bool ended = false;
    for (std::size_t index = path.size(); index-- > 0;)
        for (const std::int64_t token : path[index]->tokens) {
            if (token == rules.eos) ended = true;
            else if (token != rules.pad && (rules.per_direction || !ended)) found.tokens.push_back(token);
        }
    found.score = one.score / penalty(static_cast<std::int64_t>(found.tokens.size()) + ended);
    sentence.best = std::max(sentence.best, one.score);
    ++sentence.count;
    // Behind its equals, so that of these the shorter comes first.
    auto& kept = sentence.finished;
    kept.insert(std::upper_bound(kept.begin(), kept.end(), found, [](const Finished& a, const Finished& b) { return a.score > b.score; }),
                std::move(found));
    if (kept.size() > static_cast<std::size_t>(rules.beams) + 1) kept.pop_back();
}

// A live hypothesis can score at best its log-probability over the largest penalty that it may still come to.
bool Beam::done(const Sentence& sentence) const {
    const std::int64_t written = std::int64_t{steps_} * options_.rules.step_size;
    if (sentence.count >= options_.rules.beams || sentence.limit <= written) return true;
    if (sentence.live.empty()) return true;
    const auto wanted = static_cast<std::size_t>(options_.n_best);
    const double bound = sentence.live[0] / std::max(penalty(written + 1), penalty(sentence.limit));
    return sentence.finished.size() >= wanted && sentence.finished[wanted - 1].score >= bound;
}

void Beam::collect(Sentence& sentence) {
    Outcome& outcome = outcomes_[sentence.index];
    const auto wanted = static_cast<std::size_t>(options_.n_best);
    outcome.steps = steps_;
    for (std::size_t rank = 0; rank < std::min(wanted, sentence.finished.size()); ++rank) {
        const Finished& one = sentence.finished[rank];
        if (rank + 1 < sentence.finished.size()) sentence.margin = std::min(sentence.margin, one.score - sentence.finished[rank + 1].score);
        // Directions that end one by one may write the same text in two ways.
        const auto same = [&](const Finished& other) { return other.tokens == one.tokens; };
        if (std::none_of(outcome.hypotheses.begin(), outcome.hypotheses.end(), same)) outcome.hypotheses.push_back(one);
    }
    outcome.margin = sentence.margin;
}

}  // namespace fewstep
