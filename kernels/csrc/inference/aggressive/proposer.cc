#include "csrc/inference/aggressive/proposer.h"

#include <algorithm>
#include <numeric>

namespace fewstep {

Proposer::Proposer(std::vector<SentenceState>& states, const BatchPart& part, const Drafter* drafter, CrossCache cross_cache,
                   std::vector<Shortlist> shortlists, const std::vector<std::vector<std::int64_t>>& hints,
                   const TokenRules& token_rules, const DraftRules& rules)
    : states_(states),
      indices_(part.indices),
      team_(part.team),
      drafter_(drafter),
      hints_(hints),
      token_rules_(token_rules),
      rules_(rules),
      shortlists_(std::move(shortlists)) {
    if (rules.proposals != Proposals::NETWORK) return;
    if (rules.tree_nodes > 0)  // a token is only in the tree with all better ones of its position
        num_choices_ = std::min({rules.tree_branches, rules.tree_nodes, drafter->vocabulary.outputs()});
    if (drafter->has_heads())
        head_drafter_.emplace(*drafter, states.size(), team_);
    else if (drafter->autoregressive()) {
        std::vector<std::int64_t> entries = part.limits;
        if (rules.tree_nodes > 0)
            for (std::int64_t& count : entries) count += static_cast<std::int64_t>(num_choices_ * (tree_depth(rules.width) - 1));
        autoregressive_drafter_.emplace(*drafter, std::move(cross_cache), entries, rules.int8, team_);
    } else
        block_drafter_.emplace(*drafter, part.sources, std::move(cross_cache), part.limits, rules.int8, team_);
}

void Proposer::observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden) {
    if (autoregressive_drafter_) autoregressive_drafter_->observe(sentence, first, count, hidden);
    if (head_drafter_ && count > 0) head_drafter_->observe(sentence, hidden + (count - 1) * drafter_->network.shape.width);
}

// A tree of N nodes is at most N deep.
std::size_t Proposer::tree_depth(std::int64_t width) const { return std::min(static_cast<std::size_t>(width), rules_.tree_nodes); }

// One token less than the limit allows, because the verifier adds one.
std::int64_t Proposer::draft_length(const SentenceState& state) const {
    if (state.fell_back || rules_.proposals == Proposals::NOTHING) return 0;
    return std::min(state.width, state.limit - state.size() - 1);
}

void Proposer::draft(const std::vector<SentenceState*>& active) {
    requests_.clear();
    for (SentenceState* state : active) {
        state->draft = {};
        const std::int64_t width = draft_length(*state);
        if (width < 1 || (head_drafter_ && state->tokens.empty())) continue;
        if (rules_.proposals == Proposals::NETWORK)
            requests_.push_back({state->sentence, &state->tokens, width});
        else if (rules_.proposals == Proposals::JACOBI)
            jacobi_draft(*state, width);
        else
            lookup_draft(hints_[indices_[state->sentence]], state->tokens, rules_.bos, rules_.ngram, width, state->draft.tokens);
    }
    if (autoregressive_drafter_)
        rules_.tree_nodes > 0 ? draft_trees_autoregressively() : draft_autoregressively();
    else if (!requests_.empty())
        draft_blocks();
    for (SentenceState* state : active)
        if (state->draft.parents.empty()) truncate(state->draft.tokens);
}

// Choose the most probable tokens of each state into `chosen_`, and their probabilities if `probabilities_` has the size. The rows
// of the requests are contiguous: `rows` rows each, or with 0 as many as its width.
void Proposer::choose_tokens(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows) {
    chosen_.resize(slots.size() * num_choices_);
    if (!shortlists_.empty()) return choose_from_shortlists(hidden, slots, rows);
    const Lexicon& lexicon = drafter_->network.lexicon;
    const std::vector<std::int64_t>& common_rows = lexicon.common_tokens;
    if (rules_.draft_shortlist.tokens == 0 || common_rows.empty()) {
        const std::size_t num_tokens = drafter_->vocabulary.outputs();
        return best_allowed_tokens(drafter_->vocabulary, nullptr, hidden, slots, num_tokens, num_choices_, token_rules_, chosen_,
                                   probabilities_, logits_, team_);
    }
    const Int8Matrix* int8 = rules_.int8 ? &lexicon.common_int8 : nullptr;
    const std::size_t num_common = std::min(rules_.draft_shortlist.tokens, common_rows.size());
    choose_from(drafter_->common_rows, int8, std::span(common_rows).first(num_common), hidden, slots, chosen_, probabilities_);
}

void Proposer::choose_from_shortlists(const float* hidden, std::span<const std::int64_t> slots, std::size_t rows) {
    std::size_t row = 0;
    for (const DraftRequest& request : requests_) {
        const Shortlist& list = shortlists_[request.sentence];
        const std::size_t count = rows > 0 ? rows : static_cast<std::size_t>(request.width);
        const std::span<float> probabilities = probabilities_.empty()
                                                   ? std::span<float>()
                                                   : std::span(probabilities_).subspan(row * num_choices_, count * num_choices_);
        choose_from(list.floats(), rules_.int8 ? &list.int8() : nullptr, list.tokens(),
                    hidden + row * drafter_->network.shape.width, slots.subspan(row, count),
                    std::span(chosen_).subspan(row * num_choices_, count * num_choices_), probabilities);
        row += count;
    }
}

// Choose among `tokens`, whose rows of the vocabulary are the first of `matrix`, or of `int8` if not null.
void Proposer::choose_from(const PackedMatrix& matrix, const Int8Matrix* int8, std::span<const std::int64_t> tokens,
                           const float* hidden, std::span<const std::int64_t> slots, std::span<std::int64_t> chosen,
                           std::span<float> probabilities) {
    const TokenRules rules{{}, 0, token_rules_.min_tokens};
    best_allowed_tokens(matrix, int8, hidden, slots, tokens.size(), num_choices_, rules, chosen, probabilities, logits_, team_);
    for (std::int64_t& token : chosen)
        if (token >= 0) token = tokens[static_cast<std::size_t>(token)];
}

// Draft all slots of the requested blocks in one pass.
void Proposer::draft_blocks() {
    const float* hidden = head_drafter_ ? head_drafter_->states(requests_) : block_drafter_->states(requests_);
    const std::span<const std::int64_t> slots = head_drafter_ ? head_drafter_->slots() : block_drafter_->slots();
    probabilities_.resize(rules_.tree_nodes > 0 ? slots.size() * num_choices_ : 0);
    choose_tokens(hidden, slots, 0);
    std::size_t row = 0;
    for (const DraftRequest& request : requests_) {
        SentenceState& state = states_[request.sentence];
        rules_.tree_nodes > 0 ? draft_tree(state, row, request.width) : draft_chain(state, row, request.width);
        row += static_cast<std::size_t>(request.width);
    }
}

void Proposer::draft_chain(SentenceState& state, std::size_t row, std::int64_t width) const {
    const auto first = chosen_.begin() + static_cast<std::ptrdiff_t>(row);
    state.draft.tokens.assign(first, first + width);
}

void Proposer::draft_tree(SentenceState& state, std::size_t row, std::int64_t width) const {
    const std::size_t first = row * num_choices_, count = static_cast<std::size_t>(width) * num_choices_;
    TreeGrowth growth(rules_.tree_nodes, token_rules_.eos);
    for (std::size_t candidates = first; candidates < first + count; candidates += num_choices_)
        growth.extend(std::span(chosen_).subspan(candidates, num_choices_),
                      std::span(probabilities_).subspan(candidates, num_choices_), num_choices_, rules_.tree_nodes);
    state.draft = growth.best();
}

// Draft the requested blocks token by token, as long as their probability is high enough.
void Proposer::draft_autoregressively() {
    likelihoods_.assign(states_.size(), 1.0F);
    while (!requests_.empty()) {
        positions_.clear(), slots_.clear();
        for (const DraftRequest& request : requests_) {
            positions_.push_back({request.sentence, request.prefix, &states_[request.sentence].draft.tokens});
            slots_.push_back(static_cast<std::int64_t>(positions_.back().slot()));
        }
        probabilities_.resize(rules_.confidence > 0.0F ? requests_.size() : 0);
        choose_tokens(autoregressive_drafter_->states(positions_), slots_, 1);
        std::size_t row = 0;
        std::erase_if(requests_, [&](const DraftRequest& request) {
            std::vector<std::int64_t>& draft = states_[request.sentence].draft.tokens;
            draft.push_back(chosen_[row]);
            if (!probabilities_.empty()) likelihoods_[request.sentence] *= probabilities_[row];
            const bool likely = likelihoods_[request.sentence] >= rules_.confidence;
            return chosen_[row++] == token_rules_.eos || draft.back() < 0 || !likely ||
                   static_cast<std::int64_t>(draft.size()) == request.width;
        });
    }
}

// Grow a tree for each request: its best nodes of a level are expanded in one pass (EAGLE-2, Li et al. 2024, section 4).
void Proposer::draft_trees_autoregressively() {
    const std::vector<std::int64_t> no_draft;
    const std::vector<DraftRequest> all = requests_;
    std::vector<TreeGrowth> growths(all.size(), TreeGrowth(rules_.tree_nodes, token_rules_.eos));
    std::vector<std::size_t> growing(all.size());
    std::vector<TreeLevel> levels;
    std::iota(growing.begin(), growing.end(), std::size_t{0});
    for (std::size_t depth = 0; !growing.empty(); ++depth) {
        positions_.clear(), levels.clear(), slots_.clear(), requests_.clear();
        for (const std::size_t index : growing) {
            const DraftRequest& request = all[index];
            const std::size_t prefix_size = request.prefix->size(), count = growths[index].level_size();
            positions_.push_back({request.sentence, request.prefix, &no_draft});
            levels.push_back({request.sentence, prefix_size, &growths[index].expanded(), count});
            slots_.insert(slots_.end(), count, static_cast<std::int64_t>(prefix_size + depth));
            requests_.push_back({request.sentence, request.prefix, static_cast<std::int64_t>(count)});
        }
        probabilities_.resize(slots_.size() * num_choices_);
        choose_tokens(depth == 0 ? autoregressive_drafter_->states(positions_) : autoregressive_drafter_->states(levels), slots_,
                      0);
        std::size_t first = 0;
        for (const std::size_t index : growing) {
            const std::size_t count = growths[index].level_size() * num_choices_;
            growths[index].extend(std::span(chosen_).subspan(first, count), std::span(probabilities_).subspan(first, count),
                                  num_choices_, num_choices_);
            first += count;
        }
        std::erase_if(growing, [&](std::size_t index) {
            return depth + 1 == tree_depth(all[index].width) || growths[index].level_size() == 0;
        });
    }
    for (std::size_t index = 0; index < all.size(); ++index) states_[all[index].sentence].draft = growths[index].best();
}

// Draft the verifier's own tokens of its last pass; slots that it has not reached repeat the last token of the output.
void Proposer::jacobi_draft(SentenceState& state, std::int64_t width) {
    state.draft.tokens = state.guess;
    if (!state.tokens.empty()) state.draft.tokens.resize(static_cast<std::size_t>(width), state.tokens.back());
}

// Cut a draft after eos and before a banned token.
void Proposer::truncate(std::vector<std::int64_t>& draft) const {
    for (std::size_t position = 0; position < draft.size(); ++position) {
        const bool banned =
            std::find(token_rules_.banned.begin(), token_rules_.banned.end(), draft[position]) != token_rules_.banned.end();
        if (draft[position] < 0 || banned) return draft.resize(position);
        if (draft[position] == token_rules_.eos) return draft.resize(position + 1);
    }
}

}  // namespace fewstep
