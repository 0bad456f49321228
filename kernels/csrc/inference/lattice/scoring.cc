#include "csrc/inference/lattice/scoring.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

constexpr std::size_t STEP = LANES;
constexpr float NONE = -std::numeric_limits<float>::infinity();
constexpr std::size_t TILE_PANELS = 8;  // of the vocabulary, whose logits are held at a time

std::size_t rounded_up(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

float weighted(double log_prob, float weight) { return weight == 0.0F ? 0.0F : weight * static_cast<float>(log_prob); }

}  // namespace

void LogSum::add(const float* x, std::size_t count) {
    Floats tops = all(top_);
    std::size_t place = 0;
    for (; place + STEP <= count; place += STEP) tops = larger(tops, load(x + place));
    float highest = highest_of(tops);
    for (; place < count; ++place) highest = std::max(highest, x[place]);
    if (highest == NONE) return;
    Floats sums{};
    place = 0;
    for (; place + STEP <= count; place += STEP) sums += exp_of(load(x + place) - highest);
    if (place < count) {
        Floats rest = all(NONE);
        for (std::size_t lane = 0; place + lane < count; ++lane) rest[static_cast<int>(lane)] = x[place + lane] - highest;
        sums += exp_of(rest);
    }
    sum_ = (top_ == NONE ? 0.0F : sum_ * std::exp(top_ - highest)) + sum_of(sums);
    top_ = highest;
}

float LogSum::value() const { return top_ + std::log(sum_); }

LatticeScoring::LatticeScoring(const LatticeNetwork& network, const LatticeRules& rules, bool all_exits)
    : network_(network), rules_(rules), all_exits_(all_exits), eos_(vector_of(rules.eos)), nothing_(network.network.shape.width, 0.0F) {}

const float* LatticeScoring::vector_of(std::int64_t word) const {
    return network_.network.target_words.data() + static_cast<std::size_t>(word) * network_.network.shape.width;
}

std::size_t LatticeScoring::slots_told(const SentenceLattice& here) const { return std::min(here.slots, slots_read(here.most)); }

void LatticeScoring::choose(SentenceLattice& here, std::size_t first, std::size_t last, Space& space) const {
    const std::size_t width = network_.network.shape.width;
    space.rows.clear();
    for (std::size_t slot = first; slot < last; ++slot) space.rows.push_back({rules_.bos, slot});
    const float* states = network_.states(space.rows, here.memory, here.length, space.network);
    space.logits.reserve(here.candidates);
    float* scores = space.logits.data();
    for (std::size_t slot = first; slot < last; ++slot, states += width) {
        const std::size_t count = here.counted(slot);
        float best = NONE;
        for (std::size_t k = 0; k < count; ++k) {
            scores[k] = dot(states, vector_of(here.words(slot)[k]), width) + static_cast<float>(here.log_probs[slot * here.candidates + k]);
            best = std::max(best, scores[k]);
        }
        for (std::size_t k = 0; k < count; ++k)
            if (scores[k] >= best - rules_.prune) here.chosen[slot].push_back(k);
    }
}

// What needs candidates, but no source.
void LatticeScoring::prepare(SentenceLattice& here, Space& space) const {
    here.width = rounded_up(here.candidates);
    for (std::size_t slot = 0; slot < slots_told(here); ++slot) here.counts.push_back(here.counted(slot));
    here.start.reserve(here.width), here.exits.reserve(here.most * here.width);
    here.edges.reserve(here.most * here.candidates * here.width);
    std::fill_n(here.start.data(), here.width, NONE);
    std::fill_n(here.exits.data(), here.most * here.width, NONE);
    here.counts.resize(slots_read(here.most));
    if (rules_.normaliser != Normaliser::UNION) return;
    std::vector<std::int64_t> words{rules_.eos};
    for (std::size_t slot = 0; slot < here.most; ++slot) words.insert(words.end(), here.words(slot), here.words(slot) + here.counts[slot]);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    space.weights.clear();
    for (const std::int64_t word : words) space.weights.push_back(vector_of(word));
    here.together.pack(space.weights, nullptr, network_.network.shape.width);
}

void LatticeScoring::score(SentenceLattice& here, std::size_t first, std::size_t last, Space& space) const {
    space.rows.clear();
    for (std::size_t slot = first; slot < last; ++slot) {
        if (slot == 0) space.rows.push_back({rules_.bos, 0});
        for (std::size_t k = 0; slot > 0 && k < here.counts[slot - 1]; ++k) space.rows.push_back({here.words(slot - 1)[k], slot});
    }
    const float* states = network_.states(space.rows, here.memory, here.length, space.network);
    sum_up(here, states, space.rows.size(), space);
    std::size_t row = 0;
    for (std::size_t slot = first; slot < last; ++slot) {
        const std::size_t rows = slot == 0 ? 1 : here.counts[slot - 1];
        score_slot(here, slot, states + row * network_.network.shape.width, rows, space.sums.data() + row, space);
        row += rows;
    }
}

// The sums over more words than those of a slot.
void LatticeScoring::sum_up(const SentenceLattice& here, const float* states, std::size_t rows, Space& space) const {
    space.sums.assign(rows, LogSum());
    const Normaliser kind = rules_.normaliser;
    if (kind == Normaliser::NONE || kind == Normaliser::LOCAL) return;
    const PackedMatrix& words = kind == Normaliser::FULL ? network_.network.vocabulary : here.together;
    const std::size_t width = network_.network.shape.width, tile = TILE_PANELS * words.panel();
    space.logits.reserve(rows * tile);
    for (std::size_t panel = 0; panel < words.panels(); panel += TILE_PANELS) {
        const std::size_t end = std::min(words.panels(), panel + TILE_PANELS);
        const std::size_t columns = std::min(words.outputs(), end * words.panel()) - panel * words.panel();
        words.multiply_panels(states, width, rows, space.logits.data(), tile, panel, end);
        for (std::size_t row = 0; row < rows; ++row) space.sums[row].add(space.logits.data() + row * tile, columns);
    }
}

// From the rows of a slot: scores of its candidates, and of ending before it.
void LatticeScoring::score_slot(SentenceLattice& here, std::size_t slot, const float* states, std::size_t rows, LogSum* sums, Space& space) const {
    const std::size_t width = network_.network.shape.width;
    const bool local = rules_.normaliser == Normaliser::LOCAL, words = slot < slots_read(here.most);
    const std::size_t count = words ? here.counts[slot] : 0;
    float* scores = slot == 0 ? here.start.data() : here.edges.data() + (slot - 1) * here.candidates * here.width;
    if (words) {
        space.weights.assign(here.width, nothing_.data());
        for (std::size_t k = 0; k < count; ++k) space.weights[k] = vector_of(here.words(slot)[k]);
        space.words.pack(space.weights, nullptr, width);
        product(space.words, NarrowMatrix(space.words, network_.precision()), states, rows, scores, Then::STORE, space.network.scratch);
        space.added.reserve(here.width);
        for (std::size_t k = 0; k < here.width; ++k)
            space.added.data()[k] = k < count ? rules_.word_bonus + weighted(here.log_probs[slot * here.candidates + k], rules_.count_weight) : NONE;
    }
    const bool ends = slot > 0 && (all_exits_ || (slot >= here.least && slot <= here.most));
    for (std::size_t row = 0; row < rows; ++row) {
        const float eos = ends || local ? dot(states + row * width, eos_, width) : 0.0F;
        float* to = scores + row * here.width;
        if (local) sums[row].add(&eos, 1), sums[row].add(to, count);
        const float normaliser = rules_.normaliser == Normaliser::NONE ? 0.0F : sums[row].value();
        if (ends) here.exits.data()[(slot - 1) * here.width + row] = eos - normaliser;
        for (std::size_t k = 0; words && k < here.width; k += STEP) store(to + k, load(to + k) - normaliser + load(space.added.data() + k));
    }
}

}  // namespace fewstep
