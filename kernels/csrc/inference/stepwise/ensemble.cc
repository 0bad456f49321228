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
    if (shortlists_.empty())
        rank(vocabularies_, rules_.token_rules, 0, decoders_[0].rows(), request, top_tokens_);
    else
        rank_by_sentence(request);
    return top_tokens_;
}

// Rank `rows` rows from `first` on, which share a vocabulary.
void Ensemble::rank(std::span<const Vocabulary> vocabularies, const TokenRules& token_rules, std::size_t first, std::size_t rows,
                    const StepRequest& request, TopTokens& result) {
    const std::size_t size = rules_.slots.step_size;
    std::vector<const float*> states(states_);
    for (const float*& network_states : states) network_states += first * size * vocabularies[0].matrix.inputs();
    if (states.size() == 1)
        top_k_tokens(vocabularies[0], states[0], rows * size, size, request.slot, request.top_k, request.separate_eos, token_rules,
                     result, team_);
    else
        top_k_tokens_of_mean(vocabularies, states, rows * size, size, request.slot, request.top_k, request.separate_eos,
                             token_rules, result, team_);
}

// Rank the rows of each sentence over its shortlist.
void Ensemble::rank_by_sentence(const StepRequest& request) {
    top_tokens_.scores.clear(), top_tokens_.ids.clear(), top_tokens_.eos.clear();
    std::size_t row = 0;
    for (std::size_t position = 0; position < sentences_.size(); row += counts_[position++]) {
        const SentenceShortlist& sentence_shortlist = shortlists_[sentences_[position]];
        rank(sentence_shortlist.vocabularies, sentence_shortlist.rules, row, counts_[position], request, sentence_top_tokens_);
        top_tokens_.scores.insert(top_tokens_.scores.end(), sentence_top_tokens_.scores.begin(), sentence_top_tokens_.scores.end());
        top_tokens_.ids.insert(top_tokens_.ids.end(), sentence_top_tokens_.ids.begin(), sentence_top_tokens_.ids.end());
        top_tokens_.eos.insert(top_tokens_.eos.end(), sentence_top_tokens_.eos.begin(), sentence_top_tokens_.eos.end());
    }
}

void Ensemble::select(std::span<const std::int64_t> rows, std::span<const std::int64_t> active,
                      std::span<const std::int64_t> counts) {
    for (IncrementalDecoder& decoder : decoders_) decoder.select_rows(rows, active, counts);
    if (shortlists_.empty()) return;
    std::vector<std::size_t> sentences;
    for (const std::int64_t position : active) sentences.push_back(sentences_[static_cast<std::size_t>(position)]);
    sentences_ = std::move(sentences);
    counts_.assign(counts.begin(), counts.end());
}

}  // namespace fewstep
