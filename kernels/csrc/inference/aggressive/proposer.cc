#include "csrc/inference/aggressive/proposer.h"

#include <algorithm>

namespace fewstep {

Proposer::Proposer(std::vector<Line>& lines, const Share& share, const Drafter* drafter, Memory memory, std::vector<Shortlist> shortlists,
                   const std::vector<std::vector<std::int64_t>>& hints, const WordRules& words, const DraftRules& rules)
    : lines_(lines), places_(share.places), team_(share.team), drafter_(drafter), hints_(hints), words_(words), rules_(rules),
      shortlists_(std::move(shortlists)) {
    if (rules.proposals != Proposals::NETWORK) return;
    if (drafter->autoregressive()) writing_.emplace(*drafter, std::move(memory), share.limits, rules.bytes, team_);
    else drafting_.emplace(*drafter, share.sources, std::move(memory), share.limits, rules.bytes, team_);
}

void Proposer::learn(std::size_t sentence, std::size_t first, std::size_t count, const float* states) {
    if (writing_) writing_->learn(sentence, first, count, states);
}

// No more than would be kept: the verifier adds a token of its own.
std::int64_t Proposer::width_of(const Line& line) const {
    if (line.fell_back || rules_.proposals == Proposals::NOTHING) return 0;
    return std::min(line.width, line.limit - line.size() - 1);
}

void Proposer::draft(const std::vector<Line*>& alive) {
    orders_.clear();
    for (Line* line : alive) {
        line->draft.clear();
        const std::int64_t width = width_of(*line);
        if (width < 1) continue;
        if (rules_.proposals == Proposals::NETWORK) orders_.push_back({line->sentence, &line->tokens, width});
        else look_up(hints_[places_[line->sentence]], line->tokens, rules_.bos, rules_.ngram, width, line->draft);
    }
    if (writing_) write_blocks();
    else if (!orders_.empty()) fill_blocks();
    for (Line* line : alive) cut(line->draft);
}

// The likeliest word of each state, into `found_`, with its probability where `probabilities_` has room for it. The orders' rows
// follow one another, `rows` of each or, with 0, as many as it is wide.
void Proposer::choose(const float* states, std::span<const std::int64_t> slots, std::size_t rows) {
    found_.resize(slots.size());
    if (!shortlists_.empty()) return choose_among_shortlists(states, slots, rows);
    const Lexicon& lexicon = drafter_->network.lexicon;
    const std::vector<std::int64_t>& common = lexicon.common_words;
    if (rules_.shortlist.words == 0 || common.empty()) {
        const std::size_t all = drafter_->vocabulary.outputs();
        return likeliest_words(drafter_->vocabulary, nullptr, states, slots, all, words_, found_, probabilities_, logits_, team_);
    }
    const ByteMatrix* bytes = rules_.bytes ? &lexicon.common_bytes : nullptr;
    const std::size_t some = std::min(rules_.shortlist.words, common.size());
    choose_among(drafter_->common, bytes, std::span(common).first(some), states, slots, found_, probabilities_);
}

void Proposer::choose_among_shortlists(const float* states, std::span<const std::int64_t> slots, std::size_t rows) {
    std::size_t row = 0;
    for (const Order& order : orders_) {
        const Shortlist& list = shortlists_[order.sentence];
        const std::size_t count = rows > 0 ? rows : static_cast<std::size_t>(order.width);
        const std::span<float> probabilities = probabilities_.empty() ? std::span<float>() : std::span(probabilities_).subspan(row, count);
        choose_among(list.floats(), rules_.bytes ? &list.bytes() : nullptr, list.words(), states + row * drafter_->network.shape.width,
                     slots.subspan(row, count), std::span(found_).subspan(row, count), probabilities);
        row += count;
    }
}

// Among `words`, whose rows of the vocabulary are first in `matrix`, or in `bytes`.
void Proposer::choose_among(const PackedMatrix& matrix, const ByteMatrix* bytes, std::span<const std::int64_t> words, const float* states,
                            std::span<const std::int64_t> slots, std::span<std::int64_t> found, std::span<float> probabilities) {
    const WordRules rules{{}, 0, words_.min_tokens};
    likeliest_words(matrix, bytes, states, slots, words.size(), rules, found, probabilities, logits_, team_);
    for (std::int64_t& word : found)
        if (word >= 0) word = words[static_cast<std::size_t>(word)];
}

// All slots of the ordered blocks at once.
void Proposer::fill_blocks() {
    const float* states = drafting_->states(orders_);
    choose(states, drafting_->slots(), 0);
    std::size_t row = 0;
    for (const Order& order : orders_) {
        lines_[order.sentence].draft.assign(found_.begin() + static_cast<std::ptrdiff_t>(row),
                                            found_.begin() + static_cast<std::ptrdiff_t>(row) + order.width);
        row += static_cast<std::size_t>(order.width);
    }
}

// The ordered blocks token by token, each as far as it is likely.
void Proposer::write_blocks() {
    likelihoods_.assign(lines_.size(), 1.0F);
    while (!orders_.empty()) {
        ahead_.clear(), slots_.clear();
        for (const Order& order : orders_) {
            ahead_.push_back({order.sentence, order.written, &lines_[order.sentence].draft});
            slots_.push_back(static_cast<std::int64_t>(ahead_.back().slot()));
        }
        probabilities_.resize(rules_.confidence > 0.0F ? orders_.size() : 0);
        choose(writing_->states(ahead_), slots_, 1);
        std::size_t row = 0;
        std::erase_if(orders_, [&](const Order& order) {
            std::vector<std::int64_t>& draft = lines_[order.sentence].draft;
            draft.push_back(found_[row]);
            if (!probabilities_.empty()) likelihoods_[order.sentence] *= probabilities_[row];
            const bool likely = likelihoods_[order.sentence] >= rules_.confidence;
            return found_[row++] == words_.eos || draft.back() < 0 || !likely || static_cast<std::int64_t>(draft.size()) == order.width;
        });
    }
}

// Nothing is drafted after an eos, and no word that must not be written.
void Proposer::cut(std::vector<std::int64_t>& draft) const {
    for (std::size_t place = 0; place < draft.size(); ++place) {
        const bool banned = std::find(words_.banned.begin(), words_.banned.end(), draft[place]) != words_.banned.end();
        if (draft[place] < 0 || banned) return draft.resize(place);
        if (draft[place] == words_.eos) return draft.resize(place + 1);
    }
}

}  // namespace fewstep
