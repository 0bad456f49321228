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
    WordRules words;
    ShortlistRules shortlist;
};

// Networks over one vocabulary that write together: p(v) = 1/N sum_n p_n(v). One alone is itself. They have one lexicon.
using Networks = std::span<const Transformer* const>;

// What is asked of the slots of a step.
struct Asked {
    std::size_t slot;    // the first of them
    std::size_t wanted;  // words of each
    bool eos_apart;
};

class Writing {
 public:
    Writing(Networks networks, const SearchRules& rules, const Share& share);

    // The tokens of the step before (nothing at first) to the best words of all rows' next slots.
    const BestWords& step(std::span<const std::int64_t> previous, const Asked& asked);
    // As `Decoding::select`.
    void select(std::span<const std::int64_t> rows, std::span<const std::int64_t> going, std::span<const std::int64_t> counts);

 private:
    // What ranks the rows of a sentence whose words are listed: by network, and rules by place in the list.
    struct Listed {
        std::vector<Shortlist> lists;
        std::vector<Vocabulary> vocabularies;
        WordRules rules;
    };
    Listed listed(std::span<const std::int64_t> source) const;
    void rank(std::span<const Vocabulary> vocabularies, const WordRules& words, std::size_t first, std::size_t rows, const Asked& asked, BestWords& found);
    void rank_listed(const Asked& asked);

    Networks networks_;
    const SearchRules& rules_;
    Team& team_;
    std::vector<Vocabulary> vocabularies_;
    std::vector<Listed> listed_;  // by sentence; empty: all words may be written
    std::vector<std::size_t> sentences_, counts_;  // that go on, and rows of each of them
    std::deque<Decoding> decodings_;
    std::vector<const float*> states_;  // of the step, by network
    BestWords words_, some_;
};

}  // namespace fewstep
