#include "csrc/inference/network/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t STEP = LANES, BLOCK = 8 * STEP;
constexpr std::size_t TOGETHER = 32;  // rows whose logits are held together: few enough for a cache

// sum_i e^(x_i - top)
float sum_of_exponentials(const float* x, std::size_t count, float top) {
    Floats even{}, odd{};
    std::size_t place = 0;
    for (; place + 2 * STEP <= count; place += 2 * STEP) {
        even += exp_of(load(x + place) - top);
        odd += exp_of(load(x + place + STEP) - top);
    }
    if (place == count) return sum_of(even + odd);
    float rest[2 * LANES];
    for (std::size_t lane = 0; lane < 2 * STEP; ++lane) rest[lane] = place + lane < count ? x[place + lane] : NONE;
    return sum_of(even + exp_of(load(rest) - top) + (odd + exp_of(load(rest + STEP) - top)));
}

// The highest of each lane of a block.
Floats highest_in_block(const float* x) {
    Floats one = larger(load(x), load(x + STEP)), other = larger(load(x + 2 * STEP), load(x + 3 * STEP));
    one = larger(one, larger(load(x + 4 * STEP), load(x + 5 * STEP)));
    other = larger(other, larger(load(x + 6 * STEP), load(x + 7 * STEP)));
    return larger(one, other);
}

// The first `wanted` of x, sorted into (scores, ids), which hold minus infinity at first.
void keep_highest(const float* x, std::size_t count, std::size_t wanted, float* scores, std::int64_t* ids) {
    const auto offer = [&](std::size_t place) {
        if (!(x[place] > scores[wanted - 1])) return;
        std::size_t rank = wanted - 1;
        for (; rank > 0 && x[place] > scores[rank - 1]; --rank) scores[rank] = scores[rank - 1], ids[rank] = ids[rank - 1];
        scores[rank] = x[place], ids[rank] = static_cast<std::int64_t>(place);
    };
    std::size_t place = 0;
    for (; place + BLOCK <= count; place += BLOCK) {
        if (!any_above(highest_in_block(x + place), all(scores[wanted - 1]))) continue;
        for (std::size_t vector = place; vector < place + BLOCK; vector += STEP)
            if (any_above(load(x + vector), all(scores[wanted - 1])))
                for (std::size_t lane = 0; lane < STEP; ++lane) offer(vector + lane);
    }
    for (; place < count; ++place) offer(place);
}

// max_i x_i
float highest(const float* x, std::size_t count) {
    Floats top = all(NONE);
    std::size_t place = 0;
    for (; place + STEP <= count; place += STEP) top = larger(top, load(x + place));
    float found = highest_of(top);
    for (; place < count; ++place) found = std::max(found, x[place]);
    return found;
}

// What networks say of one row: the logits of each, and log sum_u e^logit(u).
struct Votes {
    std::vector<const float*> logits;
    std::vector<double> normalisers;
};

// shares(v) = sum_n p_n(v), 0 where all are below e^-87
void add_up(const Votes& votes, std::size_t words, float* shares) {
    std::fill_n(shares, words, 0.0F);
    for (std::size_t network = 0; network < votes.logits.size(); ++network) {
        const float* x = votes.logits[network];
        const auto normaliser = static_cast<float>(votes.normalisers[network]);
        std::size_t word = 0;
        for (; word + STEP <= words; word += STEP) store(shares + word, load(shares + word) + exp_of(load(x + word) - normaliser));
        for (; word < words; ++word) shares[word] += std::exp(x[word] - normaliser);
    }
}

// log 1/N sum_n p_n(word), however small
float log_mean(const Votes& votes, std::int64_t word) {
    double top = NONE, sum = 0.0;
    const auto log_p = [&](std::size_t network) { return static_cast<double>(votes.logits[network][word]) - votes.normalisers[network]; };
    for (std::size_t network = 0; network < votes.logits.size(); ++network) top = std::max(top, log_p(network));
    for (std::size_t network = 0; network < votes.logits.size(); ++network) sum += std::exp(log_p(network) - top);
    return static_cast<float>(top + std::log(sum / static_cast<double>(votes.logits.size())));
}

// Words by score, of equals the one of lower id first; rounding may have ranked neighbours otherwise.
void sort_words(std::size_t wanted, float* scores, std::int64_t* ids) {
    for (std::size_t end = 1; end < wanted; ++end)
        for (std::size_t rank = end; rank > 0; --rank) {
            if (scores[rank] < scores[rank - 1] || (scores[rank] == scores[rank - 1] && ids[rank] >= ids[rank - 1])) break;
            std::swap(scores[rank], scores[rank - 1]), std::swap(ids[rank], ids[rank - 1]);
        }
}

// From places among some words to the words.
void name_words(const Vocabulary& vocabulary, BestWords& found) {
    if (vocabulary.some.empty()) return;
    for (std::int64_t& id : found.ids) id = vocabulary.some[static_cast<std::size_t>(id)];
}

}  // namespace

void best_words_of_mean(std::span<const Vocabulary> vocabularies, std::span<const float* const> states, std::size_t rows,
                        std::size_t step_size, std::size_t first, std::size_t wanted, bool eos_apart, const WordRules& rules,
                        BestWords& found, Team& team) {
    const std::size_t networks = vocabularies.size(), words = vocabularies[0].words(), together = std::min(rows, TOGETHER);
    found.logits.reserve(networks * together * words);
    found.shares.reserve(words);
    found.scores.assign(rows * wanted, NONE);
    found.ids.assign(rows * wanted, rules.eos);
    found.eos.resize(rows);
    float* shares = found.shares.data();
    Votes votes{std::vector<const float*>(networks), std::vector<double>(networks)};
    for (std::size_t start = 0; start < rows; start += TOGETHER) {
        const std::size_t end = std::min(rows, start + TOGETHER);
        for (std::size_t network = 0; network < networks; ++network) {
            const float* some = states[network] + start * vocabularies[network].whole.inputs();
            vocabularies[network].logits(some, end - start, found.logits.data() + network * together * words, found.narrowed, team);
        }
        for (std::size_t row = start; row < end; ++row) {
            for (std::size_t network = 0; network < networks; ++network) {
                const float* x = found.logits.data() + (network * together + row - start) * words;
                const float top = highest(x, words);
                votes.logits[network] = x;
                votes.normalisers[network] = static_cast<double>(top) + std::log(static_cast<double>(sum_of_exponentials(x, words, top)));
            }
            add_up(votes, words, shares);
            const bool may_end = static_cast<std::int64_t>(first + row % step_size) >= rules.min_tokens;
            for (const std::int64_t word : rules.banned) shares[word] = NONE;
            if (eos_apart || !may_end) shares[rules.eos] = NONE;
            float* scores = found.scores.data() + row * wanted;
            std::int64_t* ids = found.ids.data() + row * wanted;
            keep_highest(shares, words, wanted, scores, ids);
            for (std::size_t rank = 0; rank < wanted; ++rank)
                if (scores[rank] > NONE) scores[rank] = log_mean(votes, ids[rank]);
            sort_words(wanted, scores, ids);
            found.eos[row] = may_end ? log_mean(votes, rules.eos) : NONE;
        }
    }
    name_words(vocabularies[0], found);
}

namespace {

// What is asked of the rows of a call.
struct Question {
    std::size_t wanted;
    bool eos_apart;
    const WordRules& rules;
};

void make_room(BestWords& found, std::size_t rows, const Question& question, std::size_t words) {
    found.logits.reserve(std::min(rows, TOGETHER) * words);
    found.scores.assign(rows * question.wanted, NONE);
    found.ids.assign(rows * question.wanted, question.rules.eos);
    found.eos.resize(rows);
    found.normalisers.resize(rows);
    found.asked.assign(rows, NONE);
}

// Finds a row's words by its logits x, which are as they were when it has been done. The row predicts `slot`, and is asked for the word
// `asked` besides (-1: none).
void rank_row(float* x, std::size_t words, std::int64_t slot, std::int64_t asked, const Question& question, std::size_t row, BestWords& found) {
    const auto& [wanted, eos_apart, rules] = question;
    float* scores = found.scores.data() + row * wanted;
    const bool may_end = slot >= rules.min_tokens;
    const float eos = x[rules.eos];
    float top = eos;
    std::vector<float> aside;
    for (const std::int64_t word : rules.banned) {
        aside.push_back(x[word]);
        top = std::max(top, x[word]);
        x[word] = NONE;
    }
    if (eos_apart || !may_end) x[rules.eos] = NONE;
    keep_highest(x, words, wanted, scores, found.ids.data() + row * wanted);
    if (asked >= 0) found.asked[row] = x[asked];
    for (std::size_t place = 0; place < aside.size(); ++place) x[rules.banned[place]] = aside[place];
    x[rules.eos] = eos;
    top = std::max(top, scores[0]);
    const float normaliser = top + std::log(sum_of_exponentials(x, words, top));
    for (std::size_t rank = 0; rank < wanted; ++rank) scores[rank] -= normaliser;
    found.normalisers[row] = normaliser;
    found.eos[row] = may_end ? eos - normaliser : NONE;
    found.asked[row] -= normaliser;
}

}  // namespace

void best_words(const Vocabulary& vocabulary, const float* states, std::size_t rows, std::size_t step_size, std::size_t first,
                std::size_t wanted, bool eos_apart, const WordRules& rules, BestWords& found, Team& team) {
    const std::size_t words = vocabulary.words();
    const Question question{wanted, eos_apart, rules};
    make_room(found, rows, question, words);
    for (std::size_t start = 0; start < rows; start += TOGETHER) {
        const std::size_t count = std::min(rows - start, TOGETHER);
        vocabulary.logits(states + start * vocabulary.whole.inputs(), count, found.logits.data(), found.narrowed, team);
        team.run(count, [&](std::size_t place, int) {
            const std::size_t row = start + place;
            rank_row(found.logits.data() + place * words, words, static_cast<std::int64_t>(first + row % step_size), -1, question, row, found);
        });
    }
    name_words(vocabulary, found);
}

void best_words(const Vocabulary& vocabulary, const float* states, std::span<const std::int64_t> slots,
                std::span<const std::int64_t> asked, std::size_t wanted, const WordRules& rules,
                const std::function<std::size_t(std::size_t)>& next, BestWords& found, Team& team) {
    const std::size_t words = vocabulary.words(), rows = slots.size();
    const Question question{wanted, false, rules};
    make_room(found, rows, question, words);
    for (std::size_t start = 0; start < rows;) {
        const std::size_t end = std::min(rows, start + TOGETHER);
        vocabulary.logits(states + start * vocabulary.whole.inputs(), end - start, found.logits.data(), found.narrowed, team);
        std::size_t row = start;
        for (; row < end; row = next(row))
            rank_row(found.logits.data() + (row - start) * words, words, slots[row], asked[row], question, row, found);
        start = row;
    }
    name_words(vocabulary, found);
}

void likeliest_words(const PackedMatrix& vocabulary, const ByteMatrix* bytes, const float* states, std::span<const std::int64_t> slots, std::size_t words,
                     const WordRules& rules, std::span<std::int64_t> likeliest, std::span<float> probabilities, Buffer& logits, Team& team) {
    const std::size_t width = bytes != nullptr ? bytes->inputs() : vocabulary.inputs(), whole = bytes != nullptr ? bytes->outputs() : vocabulary.outputs();
    const std::size_t panels = (words + PackedMatrix::panel() - 1) / PackedMatrix::panel();  // that hold these words
    logits.reserve(std::min(slots.size(), TOGETHER) * whole);
    std::vector<ByteMatrix::Value> values;
    for (std::size_t start = 0; start < slots.size(); start += TOGETHER) {
        const std::size_t end = std::min(slots.size(), start + TOGETHER);
        const float* some = states + start * width;
        if (bytes != nullptr) bytes->multiply_first(some, width, end - start, logits.data(), whole, panels, Then::STORE, values);
        else vocabulary.multiply_first(some, width, end - start, logits.data(), whole, panels, Then::STORE, team);
        for (std::size_t row = start; row < end; ++row) {
            float* x = logits.data() + (row - start) * whole;
            for (const std::int64_t word : rules.banned) x[word] = NONE;
            if (slots[row] < rules.min_tokens) x[rules.eos] = NONE;
            float highest = NONE;
            likeliest[row] = -1;
            keep_highest(x, words, 1, &highest, &likeliest[row]);
            if (!probabilities.empty() && likeliest[row] >= 0) probabilities[row] = 1.0F / sum_of_exponentials(x, words, highest);
        }
    }
}

}  // namespace fewstep
