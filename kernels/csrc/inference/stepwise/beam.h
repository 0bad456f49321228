// Beam search in steps of z slots: all its bookkeeping, for a batch of sentences whose network runs elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/inference/stepwise/step_selection.h"

namespace fewstep {

// A hypothesis scores log p / tokens^alpha, or (gnmt) log p / ((5 + tokens) / 6)^alpha; tokens count one EOS.
struct BeamOptions {
    StepRules rules;
    int n_best = 1;
    double alpha = 1.0;
    bool gnmt = false;
    double beam_threshold = std::numeric_limits<double>::infinity();  // nats
};

double penalty(const BeamOptions& options, std::int64_t tokens);  // what log p is divided by

struct FinishedHypothesis {
    double score;
    std::vector<std::int64_t> tokens;  // in writing order, without EOS
};

struct Outcome {
    std::vector<FinishedHypothesis> hypotheses;  // the n best, best first, distinct
    int steps;                         // until the sentence was done
    double margin;                     // smallest gap between what was kept and what was dropped
};

// What to feed next.
struct Advance {
    std::vector<std::int64_t> active;   // sentences that go on, as places among those of this step
    std::vector<std::int64_t> counts;  // [going] their live hypotheses, which are the rows of the next step: R of all
    std::vector<std::int64_t> rows;    // [R] the row of this step that each of them continues
    std::vector<std::int64_t> tokens;  // [R,z] what it appended
};

// A step ranks the continuations of a sentence's live hypotheses, at most K. Those among the first K that end are finished, the first K
// others live on, but for those whose log-probability is more than `prune` below the highest of the sentence so far, finished or not
// (Freitag and Al-Onaizan 2017). A sentence is done when K are finished, or when no live hypothesis can still come before the worst of its
// n best finished ones, or at its longest length, where what is among the first K counts as finished.
class Beam {
 public:
    // `limits`: longest outputs in tokens with EOS. The threads of the team share out the ranking of a step.
    Beam(const BeamOptions& options, const std::vector<std::int64_t>& limits, ThreadTeam& team = ThreadTeam::single());

    // For the sentences that are searched still, in order: the best words of each slot of their hypotheses.
    Advance advance(const SlotCandidates& candidates);

    std::size_t num_active() const { return active_.size(); }
    std::size_t rows() const;  // R of the next step
    const std::vector<Outcome>& outcomes() const { return outcomes_; }  // whole once none is searched any more

 private:
    struct Sentence {
        std::size_t index;
        std::int64_t limit;
        std::vector<double> live;           // [H] log-probabilities
        std::vector<FinishedHypothesis> finished;     // at most K + 1, best first
        int count = 0;                      // finished so far
        double best;                        // the highest log-probability of these
        double margin;
        std::vector<std::vector<Continuation>> history;  // by step: what each live hypothesis appended to which
    };

    double penalty(std::int64_t tokens) const { return fewstep::penalty(options_, tokens); }
    void step(Sentence& sentence, const SlotCandidates& candidates);
    bool done(const Sentence& sentence) const;
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
