#include "csrc/inference/stepwise/ensemble.h"

#include <algorithm>
#include <numeric>

namespace fewstep {

Ensemble::Ensemble(Networks networks, const SearchRules& rules, const BatchPart& part)
    : networks_(networks),
      rules_(rules),
      team_(part.team),
      shortlists_(rules.shortlist.tokens > 0 ? part.limits.size() : 0),
      sentences_(shortlists_.size()),
      counts_(shortlists_.size(), 1),
      states_(networks.size()) {
    std::iota(sentences_.begin(), sentences_.end(), std::size_t{0});
    team_.run(shortlists_.size(),
              [&](std::size_t sentence, int) { shortlists_[sentence] = build_shortlist(part.sources.sentence(sentence)); });
    for (const Transformer* network : networks) {
        vocabularies_.push_back({network->vocabulary, network->quantized_vocabulary});
        decoders_.emplace_back(*network, rules.slots, part.sources, part.team);
    }
    if (rules.no_repeat_ngram > 0)
        repeats_.emplace(RepeatRules{rules.no_repeat_ngram, rules.slots.directions}, rules.slots.step_size, part.limits.size());
}

Ensemble::SentenceShortlist Ensemble::build_shortlist(std::span<const std::int64_t> source) const {
    const std::vector<std::int64_t> tokens =
        networks_[0]->lexicon.shortlist_tokens(source, rules_.shortlist, networks_[0]->shape.target_vocabulary);
    SentenceShortlist result;
    for (const Transformer* network : networks_)
        result.lists.emplace_back(*network, tokens, rules_.shortlist.tokens, network->lexicon.quantized());
    for (std::size_t network = 0; network < networks_.size(); ++network)
        result.vocabularies.push_back(result.lists[network].vocabulary(*networks_[network]));
    result.rules = result.lists[0].localize(rules_.token_rules);
    return result;
}

const TopTokens& Ensemble::step(std::span<const std::int64_t> previous, const StepRequest& request) {
    for (std::size_t network = 0; network < decoders_.size(); ++network) states_[network] = decoders_[network].step(previous);
    if (repeats_) row_bans_ = repeats_->banned_after(previous);
    if (shortlists_.empty())
        rank(vocabularies_, rules_.token_rules, row_bans_, 0, decoders_[0].rows(), request, top_tokens_);
    else
        rank_by_sentence(request);
    return top_tokens_;
}

// Rank `rows` rows from `first` on, which share a vocabulary.
void Ensemble::rank(std::span<const Vocabulary> vocabularies, const TokenRules& token_rules,
                    std::span<const std::vector<std::int64_t>> row_bans, std::size_t first, std::size_t rows,
                    const StepRequest& request, TopTokens& result) {
    const std::size_t size = rules_.slots.step_size;
    std::vector<const float*> states(states_);
    for (const float*& network_states : states) network_states += first * size * vocabularies[0].matrix.inputs();
    if (states.size() == 1)
        top_k_tokens(vocabularies[0], states[0], rows * size, size, request.slot, request.top_k, request.separate_eos, token_rules,
                     result, team_, row_bans);
    else
        top_k_tokens_of_mean(vocabularies, states, rows * size, size, request.slot, request.top_k, request.separate_eos,
                             token_rules, result, team_, row_bans);
}

// Rank the rows of each sentence over its shortlist.
void Ensemble::rank_by_sentence(const StepRequest& request) {
    top_tokens_.scores.clear(), top_tokens_.ids.clear(), top_tokens_.eos.clear();
    std::size_t row = 0;
    for (std::size_t position = 0; position < sentences_.size(); row += counts_[position++]) {
        const SentenceShortlist& sentence_shortlist = shortlists_[sentences_[position]];
        rank(sentence_shortlist.vocabularies, sentence_shortlist.rules,
             bans_of(sentence_shortlist.lists[0], row, counts_[position]), row, counts_[position], request, sentence_top_tokens_);
        top_tokens_.scores.insert(top_tokens_.scores.end(), sentence_top_tokens_.scores.begin(), sentence_top_tokens_.scores.end());
        top_tokens_.ids.insert(top_tokens_.ids.end(), sentence_top_tokens_.ids.begin(), sentence_top_tokens_.ids.end());
        top_tokens_.eos.insert(top_tokens_.eos.end(), sentence_top_tokens_.eos.begin(), sentence_top_tokens_.eos.end());
    }
}

// The tokens that `rows` rows from `first` on may not write, as indices in a shortlist.
std::span<const std::vector<std::int64_t>> Ensemble::bans_of(const Shortlist& shortlist, std::size_t first, std::size_t rows) {
    if (row_bans_.empty()) return {};
    const std::size_t size = rules_.slots.step_size;
    sentence_bans_.resize(rows * size);
    for (std::size_t slot = 0; slot < rows * size; ++slot) {
        sentence_bans_[slot].clear();
        for (const std::int64_t token : row_bans_[first * size + slot])
            if (const std::int64_t index = shortlist.index_of(token); index >= 0) sentence_bans_[slot].push_back(index);
    }
    return sentence_bans_;
}

void Ensemble::select(std::span<const std::int64_t> rows, std::span<const std::int64_t> active,
                      std::span<const std::int64_t> counts) {
    for (IncrementalDecoder& decoder : decoders_) decoder.select_rows(rows, active, counts);
    if (repeats_) repeats_->select(rows);
    if (shortlists_.empty()) return;
    std::vector<std::size_t> sentences;
    for (const std::int64_t position : active) sentences.push_back(sentences_[static_cast<std::size_t>(position)]);
    sentences_ = std::move(sentences);
    counts_.assign(counts.begin(), counts.end());
}

}  // namespace fewstep
