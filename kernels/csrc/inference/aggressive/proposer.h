// What is proposed for sentences under way, by a network or from text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/inference/aggressive/drafters.h"
#include "csrc/inference/aggressive/sentence_state.h"
#include "csrc/inference/network/shortlist.h"

namespace fewstep {

class Proposer {
 public:
    // For the `lines` of a share. Where a network proposes, `memory` is what its decoder reads, and `shortlists`, by sentence, the words
    // that it chooses among (empty: `rules` alone say); `hints` [B] is the text that is looked up elsewhere.
    Proposer(std::vector<SentenceState>& states, const BatchPart& part, const Drafter* drafter, CrossCache cross_cache, std::vector<Shortlist> shortlists,
             const std::vector<std::vector<std::int64_t>>& references, const TokenRules& token_rules, const DraftRules& rules);

    // Drafts for the lines that go on; drafts may be empty.
    void draft(const std::vector<SentenceState*>& active);
    // The verifier's states of a sentence's slots from `first` on, which are written.
    void observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden);

 private:
    std::int64_t draft_length(const SentenceState& state) const;
    void choose_tokens(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_from_shortlists(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_from(const PackedMatrix& matrix, const Int8Matrix* int8, std::span<const std::int64_t> tokens, const float* hidden,
                      std::span<const std::int64_t> slots, std::span<std::int64_t> chosen, std::span<float> probabilities);
    void draft_blocks();
    void draft_autoregressively();
    void truncate(std::vector<std::int64_t>& draft) const;

    std::vector<SentenceState>& states_;
    const std::vector<std::size_t>& indices_;  // by sentence, among the hints
    ThreadTeam& team_;
    const Drafter* drafter_;
    const std::vector<std::vector<std::int64_t>>& references_;
    const TokenRules& token_rules_;
    const DraftRules& rules_;
    std::optional<BlockDrafter> block_drafter_;
    std::optional<AutoregressiveDrafter> autoregressive_drafter_;
    std::vector<Shortlist> shortlists_;
    std::vector<DraftRequest> requests_;
    std::vector<DraftPosition> positions_;
    std::vector<float> likelihoods_, probabilities_;  // of blocks, by sentence; of rows
    std::vector<std::int64_t> slots_, chosen_;         // rows' slots and words
    Buffer logits_;
};

}  // namespace fewstep
