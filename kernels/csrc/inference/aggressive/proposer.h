// Drafts for the sentences of a part of the batch, by a network or by n-gram look-up.
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
    // `states` of the sentences of a part. For a network, `cross_cache` holds the keys and values of its decoder and `shortlists`,
    // by sentence, its candidate tokens (empty: by `rules` only); `hints` [B] are texts for n-gram look-up.
    Proposer(std::vector<SentenceState>& states, const BatchPart& part, const Drafter* drafter, CrossCache cross_cache,
             std::vector<Shortlist> shortlists, const std::vector<std::vector<std::int64_t>>& hints, const TokenRules& token_rules,
             const DraftRules& rules);

    // Draft for the active sentences; drafts may be empty.
    void draft(const std::vector<SentenceState*>& active);
    // Pass the verifier's states [count,D] of a sentence's slots from `first` on, whose tokens are final.
    void observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden);

  private:
    std::size_t tree_depth(std::int64_t width) const;
    std::int64_t draft_length(const SentenceState& state) const;
    void choose_tokens(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_from_shortlists(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_from(const PackedMatrix& matrix, const Int8Matrix* int8, std::span<const std::int64_t> tokens, const float* hidden,
                     std::span<const std::int64_t> slots, std::span<std::int64_t> chosen, std::span<float> probabilities);
    void draft_blocks();
    void draft_chain(SentenceState& state, std::size_t row, std::int64_t width) const;
    void draft_tree(SentenceState& state, std::size_t row, std::int64_t width) const;
    void draft_autoregressively();
    void draft_trees_autoregressively();
    static void jacobi_draft(SentenceState& state, std::int64_t width);
    void truncate(std::vector<std::int64_t>& draft) const;

    std::vector<SentenceState>& states_;
    const std::vector<std::size_t>& indices_;  // by sentence: index in the hints
    ThreadTeam& team_;
    const Drafter* drafter_;
    const std::vector<std::vector<std::int64_t>>& hints_;
    const TokenRules& token_rules_;
    const DraftRules& rules_;
    std::optional<BlockDrafter> block_drafter_;
    std::optional<AutoregressiveDrafter> autoregressive_drafter_;
    std::optional<HeadDrafter> head_drafter_;
    std::size_t num_choices_ = 1;  // tokens that are chosen for each slot
    std::vector<Shortlist> shortlists_;
    std::vector<DraftRequest> requests_;
    std::vector<DraftPosition> positions_;
    std::vector<float> likelihoods_, probabilities_;  // by sentence: of its block; by row and choice
    std::vector<std::int64_t> slots_, chosen_;        // by row: its slot; by row and choice: its tokens
    Buffer logits_;
};

}  // namespace fewstep
