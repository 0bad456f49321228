// An ensemble of networks that decodes in steps: from the tokens of one step to the top tokens of the next.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "csrc/inference/network/batch_partition.h"
#include "csrc/inference/network/incremental_decoder.h"
#include "csrc/inference/network/shortlist.h"
#include "csrc/inference/stepwise/repeats.h"

namespace fewstep {

struct SearchRules {
    SlotRules slots;
    TokenRules token_rules;
    ShortlistOptions shortlist;
    std::size_t no_repeat_ngram = 0;  // n: no n-gram occurs twice in a direction of an output, which has at most one slot of a step
};

// Networks over one vocabulary and one lexicon whose probabilities are averaged: p(v) = 1/N sum_n p_n(v).
using Networks = std::span<const Transformer* const>;

// A query of one step.
struct StepRequest {
    std::size_t slot;   // first slot of the step
    std::size_t top_k;  // tokens per slot
    bool separate_eos;
};

class Ensemble {
  public:
    Ensemble(Networks networks, const SearchRules& rules, const BatchPart& part);

    // Return the top tokens of the next slots of all rows, given the tokens of the previous step (empty in the first).
    const TopTokens& step(std::span<const std::int64_t> previous, const StepRequest& request);
    // As IncrementalDecoder::select_rows.
    void select(std::span<const std::int64_t> rows, std::span<const std::int64_t> active, std::span<const std::int64_t> counts);

  private:
    // The output projections and rules of a sentence with a shortlist, by network.
    struct SentenceShortlist {
        std::vector<Shortlist> lists;
        std::vector<Vocabulary> vocabularies;
        TokenRules rules;
    };
    SentenceShortlist build_shortlist(std::span<const std::int64_t> source) const;
    void rank(std::span<const Vocabulary> vocabularies, const TokenRules& token_rules,
              std::span<const std::vector<std::int64_t>> row_bans, std::size_t first, std::size_t rows, const StepRequest& request,
              TopTokens& result);
    std::span<const std::vector<std::int64_t>> bans_of(const Shortlist& shortlist, std::size_t first, std::size_t rows);
    void rank_by_sentence(const StepRequest& request);

    Networks networks_;
    const SearchRules& rules_;
    ThreadTeam& team_;
    std::vector<Vocabulary> vocabularies_;
    std::vector<SentenceShortlist> shortlists_;    // by sentence; empty: no shortlists
    std::vector<std::size_t> sentences_, counts_;  // active sentences, and rows of each
    std::deque<IncrementalDecoder> decoders_;
    std::optional<Repeats> repeats_;
    std::span<const std::vector<std::int64_t>> row_bans_;   // [R*z] tokens that would repeat an n-gram; empty: none
    std::vector<std::vector<std::int64_t>> sentence_bans_;  // scratch: those of a sentence, in terms of its shortlist
    std::vector<const float*> states_;                      // by network: states of the step
    TopTokens top_tokens_, sentence_top_tokens_;
};

}  // namespace fewstep
