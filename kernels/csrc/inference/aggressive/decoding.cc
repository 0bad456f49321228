#include "csrc/inference/aggressive/decoding.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "csrc/inference/aggressive/sentence_state.h"
#include "csrc/inference/aggressive/proposer.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();

// Draft and verify for a share of the sentences.
class Loop {
 public:
    Loop(const Transformer& verifier, const Drafter* drafter, const Share& share, const std::vector<std::vector<std::int64_t>>& hints,
         const WordRules& words, const DraftRules& rules)
        : verifier_(verifier), team_(share.team), words_(words), rules_(rules), lines_(lines_of(share.limits, rules.width)) {
        const Buffer states = verifier.encoded(share.sources, team_);
        times_.encoder += clock_.lap();
        const bool drafts = rules.proposals == Proposals::NETWORK;
        const Buffer own = !drafts || drafter->shares_encoder ? Buffer() : drafter->network.encoded(share.sources, team_);
        times_.drafter_encoder += clock_.lap();
        read(share, states.data(), drafts ? drafter : nullptr, own.size() > 0 ? own.data() : states.data(), hints);
        times_.encoder += clock_.lap();
    }

    std::vector<Line> run() {
        std::vector<Line*> alive;
        for (Line& line : lines_) alive.push_back(&line);
        while (!alive.empty()) {
            proposer_->draft(alive);
            times_.drafter += clock_.lap();
            verify(alive);
            times_.verifier += clock_.lap();
            accept(alive);
            std::erase_if(alive, [](const Line* line) { return !line->goes_on(); });
            times_.rest += clock_.lap();
        }
        return std::move(lines_);
    }

    const AggressiveTimes& times() const { return times_; }

 private:
    // What decoders read of encoders' states, and the words to choose drafts among: all that is left to do before the first draft.
    void read(const Share& share, const float* states, const Drafter* drafter, const float* drafter_states,
              const std::vector<std::vector<std::int64_t>>& hints) {
        Memory memory = verifier_.room(share.sources), drafters = drafter != nullptr ? drafter->network.room(share.sources) : Memory();
        std::vector<Shortlist> shortlists(drafter != nullptr && rules_.shortlist.links > 0 ? lines_.size() : 0);
        lists_.resize(rules_.verified.words > 0 ? lines_.size() : 0);
        listed_rules_.resize(lists_.size());
        const std::size_t layers = memory.layers.size(), all = layers + drafters.layers.size(), drafted = all + shortlists.size();
        team_.run(drafted + lists_.size(), [&](std::size_t item, int) {
            if (item < layers) verifier_.remember(share.sources, states, item, memory);
            else if (item < all) drafter->network.remember(share.sources, drafter_states, item - layers, drafters);
            else if (item < drafted) shortlists[item - all] = shortlist(drafter->network, share.sources.sentence(item - all), rules_.shortlist, rules_.bytes);
            else list(share.sources.sentence(item - drafted), item - drafted);
        });
        verifying_.emplace(verifier_, std::move(memory), share.limits, Sight::CAUSAL, false, verifier_.narrow_decoder, team_);
        proposer_.emplace(lines_, share, drafter, std::move(drafters), std::move(shortlists), hints, words_, rules_);
    }

    void list(std::span<const std::int64_t> source, std::size_t sentence) {
        lists_[sentence] = shortlist(verifier_, source, rules_.verified, verifier_.lexicon.in_bytes());
        listed_rules_[sentence] = lists_[sentence].places(words_);
    }

    void verify(const std::vector<Line*>& alive) {
        blocks_.clear(), slots_.clear(), asked_.clear(), behind_.clear();
        std::size_t rows = 0;
        for (const Line* line : alive) rows += line->draft.size() + 1;
        const std::size_t width = verifier_.shape.width;
        float* x = verifying_->inputs(rows);
        for (const Line* line : alive) {
            const std::size_t first = line->tokens.size(), count = line->draft.size() + 1;
            blocks_.push_back({line->sentence, first, count, count});
            for (std::size_t place = 0; place < count; ++place, x += width) {
                const std::int64_t carried = place > 0 ? line->draft[place - 1] : first > 0 ? line->tokens[first - 1] : -1;
                verifying_->embed(carried, first + place, x);
                slots_.push_back(static_cast<std::int64_t>(first + place));
                asked_.push_back(place < line->draft.size() ? line->draft[place] : -1);
            }
            behind_.insert(behind_.end(), count, slots_.size());
        }
        verified_ = verifying_->states(blocks_);
        if (!lists_.empty()) return rank_listed();
        // Behind a draft that is not kept nothing of its sentence counts.
        const auto next = [this](std::size_t row) { return keeps(row) || asked_[row] < 0 ? row + 1 : behind_[row]; };
        best_words({verifier_.vocabulary, verifier_.narrow_vocabulary}, verified_, slots_, asked_, wanted(), words_, next, best_, team_);
    }

    // The words of all rows, sentence by sentence among those that are listed.
    void rank_listed() {
        best_.scores.clear(), best_.ids.clear(), best_.asked.clear();
        std::size_t row = 0;
        for (const Block& block : blocks_) {
            const Shortlist& list = lists_[block.sentence];
            std::vector<std::int64_t> asked;
            for (std::size_t place = row; place < row + block.count; ++place) asked.push_back(list.place(asked_[place]));
            best_words(list.vocabulary(verifier_), verified_ + row * verifier_.shape.width, std::span(slots_).subspan(row, block.count), asked, wanted(),
                       listed_rules_[block.sentence], [](std::size_t last) { return last + 1; }, some_, team_);
            best_.scores.insert(best_.scores.end(), some_.scores.begin(), some_.scores.end());
            best_.ids.insert(best_.ids.end(), some_.ids.begin(), some_.ids.end());
            best_.asked.insert(best_.asked.end(), some_.asked.begin(), some_.asked.end());
            row += block.count;
        }
    }

    std::size_t wanted() const { return std::max<std::size_t>(2, rules_.ranks); }

    void accept(const std::vector<Line*>& alive) {
        std::size_t row = 0;
        for (Line* line : alive) {
            const std::size_t count = line->draft.size() + 1, before = line->tokens.size();
            accept(*line, row);
            const std::size_t written = line->tokens.size() - before;
            proposer_->learn(line->sentence, before, written, verified_ + row * verifier_.shape.width);
            row += count;
        }
    }

    // Is the drafted token of a row kept? Scores are float32 log-probabilities.
    bool keeps(std::size_t row) const {
        const std::int64_t token = asked_[row];
        const float* scores = best_.scores.data() + row * wanted();
        if (token == best_.ids[row * wanted()]) return true;
        if (rules_.ranks == 1 || (rules_.strict_end && token == words_.eos)) return false;
        const float score = best_.asked[row];
        return score > NONE && score >= scores[rules_.ranks - 1] && scores[0] - score <= rules_.gap;
    }

    void accept(Line& line, std::size_t row) {
        const std::int64_t before = line.size();
        const std::size_t width = line.draft.size();
        std::size_t right = 0;
        for (std::size_t place = 0; place <= width && line.goes_on(); ++place, ++row) {
            const float* best = best_.scores.data() + row * wanted();
            const bool kept = place < width && keeps(row);
            if (place < width) ++line.tried[place], line.kept[place] += kept;
            right += kept;
            const std::int64_t own = best_.ids[row * wanted()];
            if (kept && line.draft[place] != own) line.write(line.draft[place], words_.eos, best_.asked[row], best);
            else line.write(own, words_.eos, best[0], best);
            if (!kept) break;
        }
        ++line.steps;
        line.drafted += static_cast<std::int64_t>(width), line.accepted += static_cast<std::int64_t>(right);
        if (line.fell_back || rules_.proposals == Proposals::NOTHING) return;
        ++line.blocks, line.yielded += line.size() - before;
        if (rules_.adaptive) line.width = std::clamp<std::int64_t>(right == width ? line.width + 2 : line.width - 1, 1, rules_.width);
        line.fell_back = line.blocks >= TRIALS && static_cast<double>(line.yielded) < rules_.worthwhile * static_cast<double>(line.blocks);
    }

    const Transformer& verifier_;
    Team& team_;
    const WordRules& words_;
    const DraftRules& rules_;
    Clock clock_;
    std::vector<Line> lines_;
    std::optional<BlockDecoding> verifying_;
    std::optional<Proposer> proposer_;
    const float* verified_ = nullptr;                  // states of the last pass
    std::vector<Block> blocks_;
    std::vector<std::int64_t> slots_, asked_;          // of rows: their slots, and drafts or -1
    std::vector<std::size_t> behind_;                  // rows behind the last of a row's sentence
    std::vector<Shortlist> lists_;                     // of the verifier, by sentence; empty: it chooses among all words
    std::vector<WordRules> listed_rules_;              // by place in these
    BestWords best_, some_;
    AggressiveTimes times_;
};

}  // namespace

Aggressive aggressive(const Transformer& verifier, const Drafter* drafter, const Sources& sources, const std::vector<std::int64_t>& limits,
                      const std::vector<std::vector<std::int64_t>>& hints, const BeamOptions& options, const WordRules& words,
                      const DraftRules& rules, int threads) {
    return gathered(sources, limits, options, threads, [&](const Share& share, AggressiveTimes& times) {
        Loop loop(verifier, drafter, share, hints, words, rules);
        std::vector<Line> lines = loop.run();
        add(times, loop.times());
        return lines;
    });
}

}  // namespace fewstep
