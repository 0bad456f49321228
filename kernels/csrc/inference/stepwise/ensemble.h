// The networks of a search in step: from the tokens of one step to the best words of the next.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "csrc/inference/network/incremental_decoder.h"
#include "csrc/inference/network/batch_partition.h"
#include "csrc/inference/network/shortlist.h"

namespace fewstep {

struct SearchRules {
    SlotRules slots;
    TokenRules token_rules;
    ShortlistOptions shortlist;
};

// Networks over one vocabulary that write together: p(v) = 1/N sum_n p_n(v). One alone is itself. They have one lexicon.
using Networks = std::span<const Transformer* const>;

// What is asked of the slots of a step.
struct StepRequest {
    std::size_t slot;    // the first of them
    std::size_t top_k;  // words of each
    bool separate_eos;
};

class Ensemble {
 public:
    Ensemble(Networks networks, const SearchRules& rules, const BatchPart& share);

    // The tokens of the step before (nothing at first) to the best words of all rows' next slots.
    const TopTokens& step(std::span<const std::int64_t> previous, const StepRequest& request);
    // As `Decoding::select`.
    void select(std::span<const std::int64_t> rows, std::span<const std::int64_t> active, std::span<const std::int64_t> counts);

 private:
    // What ranks the rows of a sentence whose words are listed: by network, and rules by place in the list.
    struct SentenceShortlist {
        std::vector<Shortlist> lists;
        std::vector<Vocabulary> vocabularies;
        TokenRules rules;
    };
    SentenceShortlist build_shortlist(std::span<const std::int64_t> source) const;
    void rank(std::span<const Vocabulary> vocabularies, const TokenRules& token_rules, std::size_t first, std::size_t rows, const StepRequest& request, TopTokens& result);
    void rank_by_sentence(const StepRequest& request);

    Networks networks_;
    const SearchRules& rules_;
    ThreadTeam& team_;
    std::vector<Vocabulary> vocabularies_;
    std::vector<SentenceShortlist> shortlists_;  // by sentence; empty: all words may be written
    std::vector<std::size_t> sentences_, counts_;  // that go on, and rows of each of them
    std::deque<IncrementalDecoder> decoders_;
    std::vector<const float*> states_;  // of the step, by network
    TopTokens top_tokens_, sentence_top_tokens_;
};

}  // namespace fewstep
