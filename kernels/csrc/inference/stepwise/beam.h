// Beam search in steps of z slots for a batch of sentences; the caller runs the network.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/inference/stepwise/step_selection.h"

namespace fewstep {

// Scores are log p / tokens^alpha, or with `gnmt` log p / ((5 + tokens) / 6)^alpha (Wu et al. 2016); one EOS counts as a token, and
// with whole steps (StepRules) every slot does.
struct BeamOptions {
    StepRules rules;
    int n_best = 1;
    double alpha = 1.0;
    bool gnmt = false;
    double beam_threshold = std::numeric_limits<double>::infinity();  // in nats
};

double penalty(const BeamOptions& options, std::int64_t tokens);  // the divisor of log p

struct FinishedHypothesis {
    double score;
    std::vector<std::int64_t> tokens;  // in generation order, without EOS
};

struct Outcome {
    std::vector<FinishedHypothesis> hypotheses;  // the n best, best first, distinct
    int steps;                                   // steps until the sentence was done
    double margin;                               // smallest score gap between a kept and a dropped hypothesis
};

// The input of the next step.
struct Advance {
    std::vector<std::int64_t> active;  // remaining sentences, as indices among those of this step
    std::vector<std::int64_t> counts;  // [active] rows of the next step per sentence; R in total
    std::vector<std::int64_t> rows;    // [R] the row of this step that is continued
    std::vector<std::int64_t> tokens;  // [R,z] its new tokens
};

// A step ranks the continuations of a sentence's hypotheses, of which there are at most K. Those among the first K that end are
// finished; the first K that do not end continue, except those whose log-probability is more than `beam_threshold` below the
// highest one of the sentence (Freitag and Al-Onaizan 2017). A sentence is done when K hypotheses are finished, when no hypothesis
// can still score above the worst of its n best finished ones, or at its maximum length, where the first K count as finished.
// OUTER and OUTER_AUTHORS finish all of num_kept() continuations that end, and at the maximum length the others only if none has
// ended. OUTER is done when K hypotheses are finished; OUTER_AUTHORS when the worst of at most K finished ones scores above the
// best live log-probability divided by the penalty of the maximum length.
class Beam {
  public:
    // `limits`: maximum lengths in tokens with EOS. The threads of the team share the ranking of a step.
    Beam(const BeamOptions& options, const std::vector<std::int64_t>& limits, ThreadTeam& team = ThreadTeam::single());

    // Take the candidates of each slot of all hypotheses of the sentences that are not done, in order.
    Advance advance(const SlotCandidates& candidates);

    std::size_t num_active() const { return active_.size(); }
    std::size_t rows() const;                                           // R of the next step
    const std::vector<Outcome>& outcomes() const { return outcomes_; }  // complete when num_active() is 0

  private:
    struct Sentence {
        std::size_t index;
        std::int64_t limit;
        std::vector<double> live;                  // [H] log-probabilities
        std::vector<FinishedHypothesis> finished;  // at most K + 1, best first
        int count = 0;                             // number finished so far
        double best;                               // the highest log-probability of a finished hypothesis
        double margin;
        std::vector<std::vector<Continuation>> history;  // by step: the continuations that were kept
    };

    double penalty(std::int64_t tokens) const { return fewstep::penalty(options_, tokens); }
    void step(Sentence& sentence, const SlotCandidates& candidates);
    bool done(const Sentence& sentence) const;
    std::int64_t slots_written() const { return std::int64_t{steps_} * options_.rules.step_size; }
    void finish(Sentence& sentence, const Continuation& continuation);
    void finalize(Sentence& sentence);
    void update_margin(Sentence& sentence, const Ranked& ranked, double cutoff) const;

    BeamOptions options_;
    ThreadTeam* team_;
    int steps_ = 0;
    std::vector<Sentence> active_;
    std::vector<Outcome> outcomes_;
};

}  // namespace fewstep
