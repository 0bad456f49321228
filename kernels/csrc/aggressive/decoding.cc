#include "csrc/aggressive/decoding.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>

#include "csrc/aggressive/drafting.h"
#include "csrc/aggressive/shortlist.h"
#include "csrc/network/shares.h"

namespace fewstep {

namespace {

constexpr double INFINITE = std::numeric_limits<double>::infinity();

class Clock {
 public:
    // Seconds since the last call.
    double lap() {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        last_ = now;
        return seconds;
    }

 private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// A sentence under way.
struct Line {
    std::size_t sentence;
    std::int64_t limit, width;
    double score = 0.0, margin = INFINITE;
    std::int64_t steps = 0, blocks = 0, yielded = 0, drafted = 0, accepted = 0;
    bool ended = false, fell_back = false;
    std::vector<std::int64_t> tokens, draft;
    std::vector<std::int64_t> tried, kept;

    std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
    bool goes_on() const { return !ended && size() < limit; }
    // The best two words of a slot, or the one that is kept instead of the best.
    void write(std::int64_t token, std::int64_t eos, float score_of_it, const float* best) {
        score += score_of_it;
        if (best[1] > -INFINITE) margin = std::min(margin, static_cast<double>(best[0]) - static_cast<double>(best[1]));
        if (token == eos) ended = true;
        else tokens.push_back(token);
    }
};

std::vector<Line> lines_of(const std::vector<std::int64_t>& limits, std::int64_t width) {
    std::vector<Line> lines(limits.size());
    for (std::size_t place = 0; place < lines.size(); ++place) {
        lines[place].sentence = place, lines[place].limit = limits[place], lines[place].width = width;
        lines[place].tried.resize(static_cast<std::size_t>(width)), lines[place].kept.resize(static_cast<std::size_t>(width));
    }
    return lines;
}

AggressiveOutcome outcome_of(Line&& line, const BeamOptions& options) {
    const double whole = penalty(options, line.size() + line.ended);
    return {std::move(line.tokens), line.score / whole, line.margin, line.steps, line.drafted, line.accepted, line.fell_back,
            std::move(line.tried), std::move(line.kept)};
}

// Draft and verify for a share of the sentences.
class Loop {
 public:
    Loop(const Transformer& verifier, const Drafter* drafter, const Share& share, const std::vector<std::vector<std::int64_t>>& hints,
         const WordRules& words, const DraftRules& rules)
        : verifier_(verifier), drafter_(drafter), hints_(hints), places_(share.places), team_(share.team), words_(words), rules_(rules),
          lines_(lines_of(share.limits, rules.width)) {
        const Buffer states = verifier.encoded(share.sources, team_);
        times_.encoder += clock_.lap();
        const bool drafts = rules.proposals == Proposals::NETWORK;
        const Buffer own = !drafts || drafter->shares_encoder ? Buffer() : drafter->network.encoded(share.sources, team_);
        times_.drafter_encoder += clock_.lap();
        read(share, states.data(), own.size() > 0 ? own.data() : states.data());
    }

    std::vector<Line> run() {
        std::vector<Line*> alive;
        for (Line& line : lines_) alive.push_back(&line);
        while (!alive.empty()) {
            draft(alive);
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
    void read(const Share& share, const float* states, const float* drafter_states) {
        const bool drafts = rules_.proposals == Proposals::NETWORK;
        Memory memory = verifier_.room(share.sources), drafters = drafts ? drafter_->network.room(share.sources) : Memory();
        shortlists_.resize(drafts && rules_.links > 0 ? lines_.size() : 0);
        const std::size_t layers = memory.layers.size(), all = layers + drafters.layers.size();
        team_.run(all + shortlists_.size(), [&](std::size_t item, int) {
            if (item < layers) verifier_.remember(share.sources, states, item, memory);
            else if (item < all) drafter_->network.remember(share.sources, drafter_states, item - layers, drafters);
            else shortlists_[item - all] = Shortlist(*drafter_, share.sources.sentence(item - all), rules_);
        });
        verifying_.emplace(verifier_, std::move(memory), share.limits, Sight::CAUSAL, false, verifier_.narrow_decoder, team_);
        if (drafts && drafter_->autoregressive()) writing_.emplace(*drafter_, std::move(drafters), share.limits, rules_.bytes, team_);
        else if (drafts) drafting_.emplace(*drafter_, share.sources, std::move(drafters), share.limits, rules_.bytes, team_);
        times_.encoder += clock_.lap();
    }

    // No more than would be kept: the verifier adds a token of its own.
    std::int64_t width_of(const Line& line) const {
        if (line.fell_back || rules_.proposals == Proposals::NOTHING) return 0;
        return std::min(line.width, line.limit - line.size() - 1);
    }

    void draft(const std::vector<Line*>& alive) {
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
    void choose(const float* states, std::span<const std::int64_t> slots, std::size_t rows) {
        found_.resize(slots.size());
        if (!shortlists_.empty()) return choose_among_shortlists(states, slots, rows);
        const std::vector<std::int64_t>& common = drafter_->common_words;
        if (rules_.words == 0 || common.empty()) {
            const std::size_t all = drafter_->vocabulary.outputs();
            return likeliest_words(drafter_->vocabulary, nullptr, states, slots, all, words_, found_, probabilities_, logits_, team_);
        }
        const ByteMatrix* bytes = rules_.bytes ? &drafter_->common_bytes : nullptr;
        const std::size_t some = std::min(rules_.words, common.size());
        choose_among(drafter_->common, bytes, std::span(common).first(some), states, slots, found_, probabilities_);
    }

    void choose_among_shortlists(const float* states, std::span<const std::int64_t> slots, std::size_t rows) {
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
    void choose_among(const PackedMatrix& matrix, const ByteMatrix* bytes, std::span<const std::int64_t> words, const float* states,
                      std::span<const std::int64_t> slots, std::span<std::int64_t> found, std::span<float> probabilities) {
        const WordRules rules{{}, 0, words_.min_tokens};
        likeliest_words(matrix, bytes, states, slots, words.size(), rules, found, probabilities, logits_, team_);
        for (std::int64_t& word : found)
            if (word >= 0) word = words[static_cast<std::size_t>(word)];
    }

    // All slots of the ordered blocks at once.
    void fill_blocks() {
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
    void write_blocks() {
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
    void cut(std::vector<std::int64_t>& draft) const {
        for (std::size_t place = 0; place < draft.size(); ++place) {
            const bool banned = std::find(words_.banned.begin(), words_.banned.end(), draft[place]) != words_.banned.end();
            if (draft[place] < 0 || banned) return draft.resize(place);
            if (draft[place] == words_.eos) return draft.resize(place + 1);
        }
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
        // Behind a draft that is not kept nothing of its sentence counts.
        const auto next = [this](std::size_t row) { return keeps(row) || asked_[row] < 0 ? row + 1 : behind_[row]; };
        best_words({verifier_.vocabulary, verifier_.narrow_vocabulary}, verified_, slots_, asked_, wanted(), words_, next, best_, team_);
    }

    std::size_t wanted() const { return std::max<std::size_t>(2, rules_.ranks); }

    void accept(const std::vector<Line*>& alive) {
        std::size_t row = 0;
        for (Line* line : alive) {
            const std::size_t count = line->draft.size() + 1, before = line->tokens.size();
            accept(*line, row);
            const std::size_t written = line->tokens.size() - before;
            if (writing_) writing_->learn(line->sentence, before, written, verified_ + row * verifier_.shape.width);
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
        return score > -INFINITE && score >= scores[rules_.ranks - 1] && scores[0] - score <= rules_.gap;
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
    const Drafter* drafter_;
    const std::vector<std::vector<std::int64_t>>& hints_;
    const std::vector<std::size_t>& places_;
    Team& team_;
    const WordRules& words_;
    const DraftRules& rules_;
    Clock clock_;
    std::vector<Line> lines_;
    std::optional<BlockDecoding> verifying_;
    std::optional<NetworkDrafts> drafting_;
    std::optional<FeatureDrafts> writing_;
    std::vector<Shortlist> shortlists_;  // by sentence, if drafts are chosen among those
    std::vector<Order> orders_;
    std::vector<Next> ahead_;
    std::vector<float> likelihoods_, probabilities_;  // of blocks, by sentence; of rows
    const float* verified_ = nullptr;                 // states of the last pass
    std::vector<Block> blocks_;
    std::vector<std::int64_t> slots_, asked_, found_;  // rows' slots, and drafts or -1
    std::vector<std::size_t> behind_;                  // rows behind the last of a row's sentence
    BestWords best_;
    Buffer logits_;
    AggressiveTimes times_;
};

// A drafter that writes token after token, without a verifier.
void write_alone(std::vector<Line>& lines, const Drafter& drafter, FeatureDrafts& writing, const WordRules& words, Team& team) {
    const std::vector<std::int64_t> nothing;
    BestWords best;
    std::vector<Next> ahead;
    std::vector<std::int64_t> slots;
    while (true) {
        ahead.clear(), slots.clear();
        for (const Line& line : lines)
            if (line.goes_on()) ahead.push_back({line.sentence, &line.tokens, &nothing}), slots.push_back(line.size());
        if (ahead.empty()) return;
        best_words({drafter.vocabulary, drafter.network.narrow_vocabulary}, writing.states(ahead), slots, std::vector<std::int64_t>(slots.size(), -1), 2, words,
                   [](std::size_t row) { return row + 1; }, best, team);
        for (std::size_t row = 0; row < ahead.size(); ++row) {
            Line& line = lines[ahead[row].sentence];
            line.write(best.ids[2 * row], words.eos, best.scores[2 * row], best.scores.data() + 2 * row);
            ++line.steps, ++line.drafted;
        }
    }
}

void add(AggressiveTimes& sum, const AggressiveTimes& times) {
    sum.encoder += times.encoder, sum.drafter_encoder += times.drafter_encoder, sum.drafter += times.drafter;
    sum.verifier += times.verifier, sum.rest += times.rest;
}

// Calls find(share, times) -> lines for the shares of all threads.
template <typename Find>
Aggressive gathered(const Sources& sources, const std::vector<std::int64_t>& limits, const BeamOptions& options, int threads, const Find& find) {
    Aggressive result;
    std::mutex adding;
    result.outcomes = shared_out<AggressiveOutcome>(sources, limits, threads, [&](const Share& share) {
        AggressiveTimes times;
        std::vector<AggressiveOutcome> outcomes;
        for (Line& line : find(share, times)) outcomes.push_back(outcome_of(std::move(line), options));
        const std::lock_guard<std::mutex> guard(adding);
        add(result.times, times);
        return outcomes;
    });
    return result;
}

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

Aggressive draft_only(const Transformer& verifier, const Drafter& drafter, const Sources& sources, const std::vector<std::int64_t>& limits,
                      const BeamOptions& options, const WordRules& words, const DraftRules& rules, int threads) {
    return gathered(sources, limits, options, threads, [&](const Share& share, AggressiveTimes& times) {
        Clock clock;
        std::vector<Line> lines = lines_of(share.limits, rules.width);
        const Transformer& reader = drafter.shares_encoder ? verifier : drafter.network;
        const Buffer states = reader.encoded(share.sources, share.team);
        if (drafter.autoregressive()) {
            FeatureDrafts writing(drafter, drafter.network.memory(share.sources, states.data(), share.team), share.limits, rules.bytes, share.team);
            times.drafter_encoder += clock.lap();
            write_alone(lines, drafter, writing, words, share.team);
            times.drafter += clock.lap();
            return lines;
        }
        NetworkDrafts drafting(drafter, share.sources, drafter.network.memory(share.sources, states.data(), share.team), share.limits, rules.bytes,
                               share.team);
        times.drafter_encoder += clock.lap();
        BestWords best;
        std::vector<Order> orders;
        while (true) {
            orders.clear();
            for (const Line& line : lines)
                if (line.goes_on()) orders.push_back({line.sentence, &line.tokens, std::min(rules.width, line.limit - line.size())});
            if (orders.empty()) break;
            const float* states = drafting.states(orders);
            const std::vector<std::int64_t> asked(drafting.slots().size(), -1);
            best_words({drafter.vocabulary, drafter.network.narrow_vocabulary}, states, drafting.slots(), asked, 2, words, [](std::size_t row) { return row + 1; }, best,
                       share.team);
            std::size_t row = 0;
            for (const Order& order : orders) {
                Line& line = lines[order.sentence];
                const std::size_t next = row + static_cast<std::size_t>(order.width);
                for (; row < next && line.goes_on(); ++row) line.write(best.ids[2 * row], words.eos, best.scores[2 * row], best.scores.data() + 2 * row);
                row = next;
                ++line.steps, line.drafted += order.width;
            }
            times.drafter += clock.lap();
        }
        return lines;
    });
}

}  // namespace fewstep
