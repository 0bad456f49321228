#include "csrc/inference/aggressive/decoding.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "csrc/inference/aggressive/proposer.h"
#include "csrc/inference/aggressive/sentence_state.h"

namespace fewstep {

namespace {

constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

// Draft and verify for a part of the batch.
class DraftAndVerify {
  public:
    DraftAndVerify(const Transformer& verifier, const Drafter* drafter, const BatchPart& part,
                   const std::vector<std::vector<std::int64_t>>& hints, const TokenRules& token_rules, const DraftRules& rules)
        : verifier_(verifier),
          team_(part.team),
          token_rules_(token_rules),
          rules_(rules),
          states_(initial_states(part.limits, rules.width)) {
        const Buffer hidden = verifier.encoder_states(part.sources, team_);
        times_.encoder += clock_.lap();
        const bool drafts = rules.proposals == Proposals::NETWORK;
        const Buffer drafter_hidden =
            !drafts || drafter->shares_encoder ? Buffer() : drafter->network.encoder_states(part.sources, team_);
        times_.drafter_encoder += clock_.lap();
        prepare(part, hidden.data(), drafts ? drafter : nullptr, drafter_hidden.size() > 0 ? drafter_hidden.data() : hidden.data(),
                hints);
        times_.encoder += clock_.lap();
    }

    std::vector<SentenceState> run() {
        std::vector<SentenceState*> active;
        for (SentenceState& state : states_) active.push_back(&state);
        while (!active.empty()) {
            proposer_->draft(active);
            times_.drafter += clock_.lap();
            verify(active);
            times_.verifier += clock_.lap();
            accept(active);
            std::erase_if(active, [](const SentenceState* state) { return !state->unfinished(); });
            times_.rest += clock_.lap();
        }
        return std::move(states_);
    }

    const AggressiveTimes& times() const { return times_; }

  private:
    // Project the encoder states for both decoders and build the shortlists, in parallel.
    void prepare(const BatchPart& part, const float* hidden, const Drafter* drafter, const float* drafter_states,
                 const std::vector<std::vector<std::int64_t>>& hints) {
        CrossCache verifier_cache = verifier_.allocate_cross_cache(part.sources),
                   drafter_cache = drafter != nullptr ? drafter->network.allocate_cross_cache(part.sources) : CrossCache();
        std::vector<Shortlist> shortlists(drafter != nullptr && rules_.draft_shortlist.links > 0 ? states_.size() : 0);
        shortlists_.resize(rules_.verifier_shortlist.tokens > 0 ? states_.size() : 0);
        shortlist_rules_.resize(shortlists_.size());
        const std::size_t layers = verifier_cache.layers.size(), drafter_end = layers + drafter_cache.layers.size(),
                          num_draft_items = drafter_end + shortlists.size();
        team_.run(num_draft_items + shortlists_.size(), [&](std::size_t item, int) {
            if (item < layers)
                verifier_.project_memory(part.sources, hidden, item, verifier_cache);
            else if (item < drafter_end)
                drafter->network.project_memory(part.sources, drafter_states, item - layers, drafter_cache);
            else if (item < num_draft_items)
                shortlists[item - drafter_end] =
                    shortlist(drafter->network, part.sources.sentence(item - drafter_end), rules_.draft_shortlist, rules_.int8);
            else
                build_shortlist(part.sources.sentence(item - num_draft_items), item - num_draft_items);
        });
        std::vector<std::int64_t> entries = part.limits;  // a tree may need entries behind the last slot
        for (std::int64_t& count : entries) count += static_cast<std::int64_t>(rules_.tree_nodes);
        verifier_decoder_.emplace(verifier_, std::move(verifier_cache), entries, Sight::CAUSAL, false, verifier_.quantized_decoder,
                                  team_);
        proposer_.emplace(states_, part, drafter, std::move(drafter_cache), std::move(shortlists), hints, token_rules_, rules_);
    }

    void build_shortlist(std::span<const std::int64_t> source, std::size_t sentence) {
        shortlists_[sentence] = shortlist(verifier_, source, rules_.verifier_shortlist, verifier_.lexicon.quantized());
        shortlist_rules_[sentence] = shortlists_[sentence].localize(token_rules_);
    }

    void verify(const std::vector<SentenceState*>& active) {
        blocks_.clear(), slots_.clear(), drafts_.clear(), sentence_end_.clear();
        std::size_t rows = 0;
        for (const SentenceState* state : active) rows += state->draft.size() + 1;
        const std::size_t width = verifier_.shape.width;
        float* x = verifier_decoder_->inputs(rows);
        for (const SentenceState* state : active) {
            const std::size_t first = state->tokens.size(), count = state->draft.size() + 1;
            const DraftTree& draft = state->draft;
            blocks_.push_back({state->sentence, first, count, count, draft.parents});
            for (std::size_t node = 0; node < count; ++node, x += width) {
                const std::int64_t input_token = node > 0 ? draft.tokens[node - 1] : first > 0 ? state->tokens[first - 1] : -1;
                const std::size_t slot = first + draft.depth(node);
                verifier_decoder_->embed(input_token, slot, x);
                slots_.push_back(static_cast<std::int64_t>(slot));
                drafts_.push_back(draft.parents.empty() && node < draft.size() ? draft.tokens[node] : -1);
            }
            sentence_end_.insert(sentence_end_.end(), count, slots_.size());
        }
        verifier_states_ = verifier_decoder_->states(blocks_);
        if (!shortlists_.empty()) return rank_by_sentence();
        // After a rejected draft the remaining rows of its sentence are not needed, except as the next guesses.
        const auto next = [this](std::size_t row) {
            return accepts(row) || drafts_[row] < 0 || rules_.proposals == Proposals::JACOBI ? row + 1 : sentence_end_[row];
        };
        top_k_tokens({verifier_.vocabulary, verifier_.quantized_vocabulary}, verifier_states_, slots_, drafts_, num_ranked(),
                     token_rules_, next, top_tokens_, team_);
    }

    // Rank the rows of each sentence over its shortlist.
    void rank_by_sentence() {
        top_tokens_.scores.clear(), top_tokens_.ids.clear(), top_tokens_.given_scores.clear();
        std::size_t row = 0;
        for (const Block& block : blocks_) {
            const Shortlist& sentence_shortlist = shortlists_[block.sentence];
            std::vector<std::int64_t> given;
            for (std::size_t position = row; position < row + block.count; ++position)
                given.push_back(sentence_shortlist.index_of(drafts_[position]));
            top_k_tokens(
                sentence_shortlist.vocabulary(verifier_), verifier_states_ + row * verifier_.shape.width,
                std::span(slots_).subspan(row, block.count), given, num_ranked(), shortlist_rules_[block.sentence],
                [](std::size_t last) { return last + 1; }, sentence_top_tokens_, team_);
            top_tokens_.scores.insert(top_tokens_.scores.end(), sentence_top_tokens_.scores.begin(),
                                      sentence_top_tokens_.scores.end());
            top_tokens_.ids.insert(top_tokens_.ids.end(), sentence_top_tokens_.ids.begin(), sentence_top_tokens_.ids.end());
            top_tokens_.given_scores.insert(top_tokens_.given_scores.end(), sentence_top_tokens_.given_scores.begin(),
                                            sentence_top_tokens_.given_scores.end());
            row += block.count;
        }
    }

    std::size_t num_ranked() const { return std::max<std::size_t>(2, rules_.top_k); }

    void accept(const std::vector<SentenceState*>& active) {
        std::size_t row = 0;
        for (SentenceState* state : active) {
            const std::size_t count = state->draft.size() + 1, before = state->tokens.size(), width = verifier_.shape.width;
            if (!state->draft.parents.empty()) {
                accept_path(*state, row);
            } else {
                accept(*state, row);
                proposer_->observe(state->sentence, before, state->tokens.size() - before, verifier_states_ + row * width);
            }
            row += count;
        }
    }

    // Follow the verifier's own tokens from the root of a tree, whose rows begin at `first_row`, as far as they are drafted.
    void accept_path(SentenceState& state, std::size_t first_row) {
        const std::size_t before = state.tokens.size(), width = verifier_.shape.width;
        const std::int64_t size = state.size();
        path_.assign(1, 0);
        std::int64_t num_accepted = 0;
        while (true) {
            const std::size_t node = path_.back(), row = first_row + node;
            const float* best = top_tokens_.scores.data() + row * num_ranked();
            const std::int64_t own = top_tokens_.ids[row * num_ranked()];
            const std::size_t child = state.draft.child(node, own);
            if (state.draft.has_children(node)) {
                ++state.proposed_by_slot[path_.size() - 1];
                state.accepted_by_slot[path_.size() - 1] += child > 0;
            }
            num_accepted += child > 0;
            state.write(own, token_rules_.eos, best[0], best);
            if (child == 0 || !state.unfinished()) break;
            path_.push_back(child);
        }
        verifier_decoder_->keep_path(state.sentence, before, path_);
        path_states_.resize(path_.size() * width);
        for (std::size_t position = 0; position < path_.size(); ++position)
            std::copy_n(verifier_states_ + (first_row + path_[position]) * width, width, path_states_.data() + position * width);
        proposer_->observe(state.sentence, before, state.tokens.size() - before, path_states_.data());
        count_pass(state, size, num_accepted);
    }

    // Return whether the drafted token of a row is accepted. Scores are float32 log-probabilities.
    bool accepts(std::size_t row) const {
        const std::int64_t token = drafts_[row];
        const float* scores = top_tokens_.scores.data() + row * num_ranked();
        if (token == top_tokens_.ids[row * num_ranked()]) return true;
        if (rules_.top_k == 1 || (rules_.require_top1_eos && token == token_rules_.eos)) return false;
        const float score = top_tokens_.given_scores[row];
        return score > MINUS_INFINITY && score >= scores[rules_.top_k - 1] && scores[0] - score <= rules_.max_logprob_gap;
    }

    void accept(SentenceState& state, std::size_t row) {
        const std::int64_t before = state.size();
        const std::size_t width = state.draft.size(), end = row + width + 1;
        std::int64_t num_accepted = 0;
        for (std::size_t position = 0; position <= width && state.unfinished(); ++position, ++row) {
            const float* best = top_tokens_.scores.data() + row * num_ranked();
            const bool accepted = position < width && accepts(row);
            if (position < width) ++state.proposed_by_slot[position], state.accepted_by_slot[position] += accepted;
            num_accepted += accepted;
            const std::int64_t own = top_tokens_.ids[row * num_ranked()];
            if (accepted && state.draft.tokens[position] != own)
                state.write(state.draft.tokens[position], token_rules_.eos, top_tokens_.given_scores[row], best);
            else
                state.write(own, token_rules_.eos, best[0], best);
            if (!accepted) break;
        }
        if (rules_.proposals == Proposals::JACOBI) {
            state.guess.clear();
            while (++row < end) state.guess.push_back(top_tokens_.ids[row * num_ranked()]);
        }
        count_pass(state, before, num_accepted);
    }

    // Count a pass that began with `before` tokens, and adapt or stop drafting.
    void count_pass(SentenceState& state, std::int64_t before, std::int64_t num_accepted) {
        const auto num_drafted = static_cast<std::int64_t>(state.draft.size());
        ++state.steps;
        state.num_drafted += num_drafted, state.num_accepted += num_accepted;
        if (state.fell_back || rules_.proposals == Proposals::NOTHING) return;
        if (state.steps > 1) ++state.blocks, state.tokens_from_blocks += state.size() - before;
        if (rules_.adaptive)
            state.width =
                std::clamp<std::int64_t>(num_accepted == num_drafted ? state.width + 2 : state.width - 1, 1, rules_.width);
        state.fell_back = state.blocks >= MIN_TRIAL_BLOCKS && static_cast<double>(state.tokens_from_blocks) <
                                                                  rules_.min_tokens_per_pass * static_cast<double>(state.blocks);
    }

    const Transformer& verifier_;
    ThreadTeam& team_;
    const TokenRules& token_rules_;
    const DraftRules& rules_;
    Clock clock_;
    std::vector<SentenceState> states_;
    std::optional<BlockDecoder> verifier_decoder_;
    std::optional<Proposer> proposer_;
    const float* verifier_states_ = nullptr;  // of the last pass
    std::vector<Block> blocks_;
    std::vector<std::int64_t> slots_, drafts_;  // by row: its slot, and the token drafted after it, or -1 (also in a tree)
    std::vector<std::size_t> path_;             // accepted nodes of a tree, from the root on
    std::vector<float> path_states_;
    std::vector<std::size_t> sentence_end_;    // by row: the first row of the next sentence
    std::vector<Shortlist> shortlists_;        // of the verifier, by sentence; empty: no shortlists
    std::vector<TokenRules> shortlist_rules_;  // in terms of indices in them
    TopTokens top_tokens_, sentence_top_tokens_;
    AggressiveTimes times_;
};

}  // namespace

Aggressive aggressive(const Transformer& verifier, const Drafter* drafter, const Sources& sources,
                      const std::vector<std::int64_t>& limits, const std::vector<std::vector<std::int64_t>>& hints,
                      const BeamOptions& options, const TokenRules& token_rules, const DraftRules& rules, int threads) {
    return run_batch(sources, limits, options, threads, [&](const BatchPart& part, AggressiveTimes& times) {
        DraftAndVerify decoder(verifier, drafter, part, hints, token_rules, rules);
        std::vector<SentenceState> states = decoder.run();
        add_times(times, decoder.times());
        return states;
    });
}

}  // namespace fewstep
