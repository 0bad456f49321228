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
    Proposer(std::vector<Line>& lines, const Share& share, const Drafter* drafter, Memory memory, std::vector<Shortlist> shortlists,
             const std::vector<std::vector<std::int64_t>>& hints, const WordRules& words, const DraftRules& rules);

    // Drafts for the lines that go on; drafts may be empty.
    void draft(const std::vector<Line*>& alive);
    // The verifier's states of a sentence's slots from `first` on, which are written.
    void learn(std::size_t sentence, std::size_t first, std::size_t count, const float* states);

 private:
    std::int64_t width_of(const Line& line) const;
    void choose(const float* states, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_among_shortlists(const float* states, std::span<const std::int64_t> slots, std::size_t rows);
    void choose_among(const PackedMatrix& matrix, const ByteMatrix* bytes, std::span<const std::int64_t> words, const float* states,
                      std::span<const std::int64_t> slots, std::span<std::int64_t> found, std::span<float> probabilities);
    void fill_blocks();
    void write_blocks();
    void cut(std::vector<std::int64_t>& draft) const;

    std::vector<Line>& lines_;
    const std::vector<std::size_t>& places_;  // by sentence, among the hints
    Team& team_;
    const Drafter* drafter_;
    const std::vector<std::vector<std::int64_t>>& hints_;
    const WordRules& words_;
    const DraftRules& rules_;
    std::optional<NetworkDrafts> drafting_;
    std::optional<FeatureDrafts> writing_;
    std::vector<Shortlist> shortlists_;
    std::vector<Order> orders_;
    std::vector<Next> ahead_;
    std::vector<float> likelihoods_, probabilities_;  // of blocks, by sentence; of rows
    std::vector<std::int64_t> slots_, found_;         // rows' slots and words
    Buffer logits_;
};

}  // namespace fewstep
