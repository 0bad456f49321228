#include "csrc/inference/stepwise/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace fewstep {

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

}  // namespace

double penalty(const BeamOptions& options, std::int64_t tokens) {
    const auto length = static_cast<double>(tokens);
    return std::pow(options.gnmt ? (5.0 + length) / 6.0 : length, options.alpha);
}

Beam::Beam(const BeamOptions& options, const std::vector<std::int64_t>& limits, ThreadTeam& team)
    : options_(options), team_(&team), outcomes_(limits.size()) {
    for (std::size_t index = 0; index < limits.size(); ++index)
        active_.push_back({index, limits[index], {0.0}, {}, 0, -INFINITE, INFINITE, {}});
}

std::size_t Beam::rows() const {
    std::size_t rows = 0;
    for (const Sentence& sentence : active_) rows += sentence.live.size();
    return rows;
}

Advance Beam::advance(const SlotCandidates& candidates) {
    const auto slots = static_cast<std::size_t>(options_.rules.step_size),
               hypothesis = slots * static_cast<std::size_t>(candidates.num_candidates);
    ++steps_;
    Advance next;
    std::vector<Sentence> active;
    std::size_t first = 0, end = 0;
    for (std::size_t position = 0; position < active_.size(); ++position, first = end) {
        Sentence& sentence = active_[position];
        end = first + sentence.live.size();
        step(sentence, {candidates.scores + first * hypothesis, candidates.ids + first * hypothesis, candidates.eos + first * slots,
                        candidates.num_candidates});
        if (done(sentence)) {
            finalize(sentence);
            continue;
        }
        next.active.push_back(static_cast<std::int64_t>(position));
        next.counts.push_back(static_cast<std::int64_t>(sentence.live.size()));
        for (const Continuation& continuation : sentence.history.back()) {
            next.rows.push_back(static_cast<std::int64_t>(first) + continuation.parent);
            next.tokens.insert(next.tokens.end(), continuation.tokens.begin(), continuation.tokens.end());
        }
        active.push_back(std::move(sentence));
    }
    active_ = std::move(active);
    return next;
}

void Beam::step(Sentence& sentence, const SlotCandidates& candidates) {
    const auto beams = static_cast<std::size_t>(options_.rules.beams);
    const std::int64_t before = std::int64_t{steps_ - 1} * options_.rules.step_size;
    Ranked ranked = select(options_.rules, candidates, sentence.live, sentence.limit - before, *team_);
    const std::span<Continuation> kept(ranked.all.data(), std::min(options_.rules.num_kept(), ranked.all.size()));
    const bool none_ended = sentence.finished.empty() && std::ranges::none_of(kept, &Continuation::ends);
    if (sentence.limit <= slots_written() && (none_ended || !options_.rules.whole_steps()))
        for (Continuation& continuation : ranked.all) continuation.ends = true;
    for (const Continuation& continuation : kept)
        if (continuation.ends) finish(sentence, continuation);
    const double cutoff = std::max(sentence.best, ranked.all.empty() ? -INFINITE : ranked.all[0].score) - options_.beam_threshold;
    sentence.history.emplace_back();
    sentence.live.clear();
    for (std::size_t rank = 0; rank < std::min(beams, ranked.unfinished.size()) && ranked.unfinished[rank].score >= cutoff;
         ++rank) {
        sentence.history.back().push_back(ranked.unfinished[rank]);
        sentence.live.push_back(ranked.unfinished[rank].score);
    }
    update_margin(sentence, ranked, cutoff);
}

// The smallest score gap of a decision: of finished hypotheses to the border of those kept, and, unless the sentence is done, of
// the last kept hypothesis to the next one and of each of the first K to the cutoff.
void Beam::update_margin(Sentence& sentence, const Ranked& ranked, double cutoff) const {
    const auto beams = static_cast<std::size_t>(options_.rules.beams);
    for (std::size_t rank = 0; rank < std::min(beams, ranked.unfinished.size()); ++rank)
        sentence.margin = std::min(sentence.margin, std::abs(ranked.unfinished[rank].score - cutoff));
    const auto& all = ranked.all;
    if (const std::size_t kept = options_.rules.num_kept(); all.size() > kept) {
        for (std::size_t rank = 0; rank < kept; ++rank)
            if (all[rank].ends) sentence.margin = std::min(sentence.margin, all[rank].score - all[kept].score);
        for (std::size_t rank = kept; rank < all.size(); ++rank)
            if (all[rank].ends) sentence.margin = std::min(sentence.margin, all[kept - 1].score - all[rank].score);
    }
    if (ranked.unfinished.size() > beams && sentence.live.size() == beams && !done(sentence))
        sentence.margin = std::min(sentence.margin, ranked.unfinished[beams - 1].score - ranked.unfinished[beams].score);
}

void Beam::finish(Sentence& sentence, const Continuation& continuation) {
    const StepRules& rules = options_.rules;
    std::vector<const Continuation*> path{&continuation};
    for (std::size_t past = sentence.history.size(); past-- > 0;)
        path.push_back(&sentence.history[past][static_cast<std::size_t>(path.back()->parent)]);
    FinishedHypothesis found{0.0, {}};
    bool ended = false;
    for (std::size_t index = path.size(); index-- > 0;)
        for (const std::int64_t token : path[index]->tokens) {
            if (token == rules.eos)
                ended = true;
            else if (token != rules.pad && (rules.per_direction || !ended))
                found.tokens.push_back(token);
        }
    const auto text = static_cast<std::int64_t>(found.tokens.size()) + ended;
    found.score = continuation.score / penalty(rules.whole_steps() ? slots_written() : text);
    sentence.best = std::max(sentence.best, continuation.score);
    ++sentence.count;
    // Inserted behind hypotheses of equal score, so that the shorter comes first.
    auto& finished = sentence.finished;
    finished.insert(std::upper_bound(finished.begin(), finished.end(), found,
                                     [](const FinishedHypothesis& a, const FinishedHypothesis& b) { return a.score > b.score; }),
                    std::move(found));
    if (finished.size() > static_cast<std::size_t>(rules.beams) + 1) finished.pop_back();
}

// The score of an unfinished hypothesis is at most its log-probability divided by the largest penalty that it can reach.
bool Beam::done(const Sentence& sentence) const {
    const std::int64_t written = slots_written();
    if (sentence.limit <= written || sentence.live.empty()) return true;
    if (options_.rules.selection == Selection::OUTER_AUTHORS) {
        const std::size_t finished = std::min(static_cast<std::size_t>(options_.rules.beams), sentence.finished.size());
        return finished > 0 && sentence.finished[finished - 1].score > sentence.live[0] / penalty(sentence.limit);
    }
    if (sentence.count >= options_.rules.beams) return true;
    if (options_.rules.selection == Selection::OUTER) return false;
    const auto n_best = static_cast<std::size_t>(options_.n_best);
    const double bound = sentence.live[0] / std::max(penalty(written + 1), penalty(sentence.limit));
    return sentence.finished.size() >= n_best && sentence.finished[n_best - 1].score >= bound;
}

void Beam::finalize(Sentence& sentence) {
    Outcome& outcome = outcomes_[sentence.index];
    const auto n_best = static_cast<std::size_t>(options_.n_best);
    outcome.steps = steps_;
    for (std::size_t rank = 0; rank < std::min(n_best, sentence.finished.size()); ++rank) {
        const FinishedHypothesis& continuation = sentence.finished[rank];
        if (rank + 1 < sentence.finished.size())
            sentence.margin = std::min(sentence.margin, continuation.score - sentence.finished[rank + 1].score);
        // Directions that end separately may produce the same text in two ways.
        const auto same = [&](const FinishedHypothesis& other) { return other.tokens == continuation.tokens; };
        if (std::none_of(outcome.hypotheses.begin(), outcome.hypotheses.end(), same)) outcome.hypotheses.push_back(continuation);
    }
    outcome.margin = sentence.margin;
}

}  // namespace fewstep
