#include "csrc/inference/stepwise/ensemble.h"

#include <algorithm>
#include <numeric>

namespace fewstep {

Writing::Writing(Networks networks, const SearchRules& rules, const Share& share)
    : networks_(networks), rules_(rules), team_(share.team), listed_(rules.shortlist.words > 0 ? share.limits.size() : 0),
      sentences_(listed_.size()), counts_(listed_.size(), 1), states_(networks.size()) {
    std::iota(sentences_.begin(), sentences_.end(), std::size_t{0});
    team_.run(listed_.size(), [&](std::size_t sentence, int) { listed_[sentence] = listed(share.sources.sentence(sentence)); });
    for (const Transformer* network : networks) {
        vocabularies_.push_back({network->vocabulary, network->narrow_vocabulary});
        decodings_.emplace_back(*network, rules.slots, share.sources, share.team);
    }
}

Writing::Listed Writing::listed(std::span<const std::int64_t> source) const {
    const std::vector<std::int64_t> words = networks_[0]->lexicon.listed(source, rules_.shortlist, networks_[0]->shape.target_words);
    Listed found;
    for (const Transformer* network : networks_)
        found.lists.emplace_back(*network, words, rules_.shortlist.words, network->lexicon.in_bytes());
    for (std::size_t network = 0; network < networks_.size(); ++network)
        found.vocabularies.push_back(found.lists[network].vocabulary(*networks_[network]));
    found.rules = found.lists[0].places(rules_.words);
    return found;
}

const BestWords& Writing::step(std::span<const std::int64_t> previous, const Asked& asked) {
    for (std::size_t network = 0; network < decodings_.size(); ++network) states_[network] = decodings_[network].step(previous);
    if (listed_.empty()) rank(vocabularies_, rules_.words, 0, decodings_[0].rows(), asked, words_);
    else rank_listed(asked);
    return words_;
}

// Rows from the first on, of one vocabulary.
void Writing::rank(std::span<const Vocabulary> vocabularies, const WordRules& words, std::size_t first, std::size_t rows, const Asked& asked,
                   BestWords& found) {
    const std::size_t size = rules_.slots.step_size;
    std::vector<const float*> states(states_);
    for (const float*& of_network : states) of_network += first * size * vocabularies[0].whole.inputs();
    if (states.size() == 1) best_words(vocabularies[0], states[0], rows * size, size, asked.slot, asked.wanted, asked.eos_apart, words, found, team_);
    else best_words_of_mean(vocabularies, states, rows * size, size, asked.slot, asked.wanted, asked.eos_apart, words, found, team_);
}

// Sentence by sentence.
void Writing::rank_listed(const Asked& asked) {
    words_.scores.clear(), words_.ids.clear(), words_.eos.clear();
    std::size_t row = 0;
    for (std::size_t place = 0; place < sentences_.size(); row += counts_[place++]) {
        const Listed& one = listed_[sentences_[place]];
        rank(one.vocabularies, one.rules, row, counts_[place], asked, some_);
        words_.scores.insert(words_.scores.end(), some_.scores.begin(), some_.scores.end());
        words_.ids.insert(words_.ids.end(), some_.ids.begin(), some_.ids.end());
        words_.eos.insert(words_.eos.end(), some_.eos.begin(), some_.eos.end());
    }
}

void Writing::select(std::span<const std::int64_t> rows, std::span<const std::int64_t> going, std::span<const std::int64_t> counts) {
    for (Decoding& decoding : decodings_) decoding.select(rows, going, counts);
    if (listed_.empty()) return;
    std::vector<std::size_t> sentences;
    for (const std::int64_t place : going) sentences.push_back(sentences_[static_cast<std::size_t>(place)]);
    sentences_ = std::move(sentences);
    counts_.assign(counts.begin(), counts.end());
}

}  // namespace fewstep
