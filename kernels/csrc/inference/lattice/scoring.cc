#include "csrc/inference/lattice/scoring.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/base/simd_f32.h"

namespace fewstep {

std::size_t SentenceLattice::count_candidates(std::size_t slot) const {
    return static_cast<std::size_t>(
        std::find_if(tokens(slot), tokens(slot) + candidates, [](std::int64_t token) { return token < 0; }) - tokens(slot));
}

void SentenceLattice::apply_selection() {
    std::size_t max_selected = 1;
    for (const auto& one : selected) max_selected = std::max(max_selected, one.size());
    selected_ids.assign(selected.size() * max_selected, -1),
        selected_log_probs.assign(selected.size() * max_selected, -std::numeric_limits<double>::infinity());
    for (std::size_t slot = 0; slot < selected.size(); ++slot)
        for (std::size_t k = 0; k < selected[slot].size(); ++k) {
            selected_ids[slot * max_selected + k] = tokens(slot)[selected[slot][k]];
            selected_log_probs[slot * max_selected + k] = log_probs[slot * candidates + selected[slot][k]];
        }
    token_ids = selected_ids.data(), log_probs = selected_log_probs.data();
    slots = selected.size(), candidates = max_selected;
}

namespace {

constexpr std::size_t STEP = F32_LANES;
constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
constexpr std::size_t TILE_PANELS = 8;  // panels of the vocabulary whose logits are held at a time

std::size_t round_up_to_vectors(std::size_t count) { return (count + STEP - 1) / STEP * STEP; }

float weighted(double log_prob, float weight) { return weight == 0.0F ? 0.0F : weight * static_cast<float>(log_prob); }

}  // namespace

void LogSum::add(const float* x, std::size_t count) {
    F32Vector tops = broadcast(top_);
    std::size_t position = 0;
    for (; position + STEP <= count; position += STEP) tops = vector_max(tops, load(x + position));
    float highest = horizontal_max(tops);
    for (; position < count; ++position) highest = std::max(highest, x[position]);
    if (highest == MINUS_INFINITY) return;
    F32Vector sums{};
    position = 0;
    for (; position + STEP <= count; position += STEP) sums += vector_exp(load(x + position) - highest);
    if (position < count) {
        F32Vector rest = broadcast(MINUS_INFINITY);
        for (std::size_t lane = 0; position + lane < count; ++lane) rest[static_cast<int>(lane)] = x[position + lane] - highest;
        sums += vector_exp(rest);
    }
    sum_ = (top_ == MINUS_INFINITY ? 0.0F : sum_ * std::exp(top_ - highest)) + horizontal_sum(sums);
    top_ = highest;
}

float LogSum::value() const { return top_ + std::log(sum_); }

LatticeScoring::LatticeScoring(const LatticeNetwork& network, const LatticeRules& rules, bool all_exits)
    : network_(network),
      rules_(rules),
      all_exits_(all_exits),
      eos_(embedding_of(rules.eos)),
      zeros_(network.network.shape.width, 0.0F) {}

const float* LatticeScoring::embedding_of(std::int64_t token) const {
    return network_.network.target_embedding.data() + static_cast<std::size_t>(token) * network_.network.shape.width;
}

std::size_t LatticeScoring::slots_looked_up(const SentenceLattice& lattice) const {
    return std::min(lattice.slots, slots_read(lattice.max_length));
}

void LatticeScoring::select_candidates(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const {
    const std::size_t width = network_.network.shape.width;
    workspace.rows.clear();
    for (std::size_t slot = first; slot < last; ++slot) workspace.rows.push_back({rules_.bos, slot});
    const float* states = network_.states(workspace.rows, lattice.cross_cache, lattice.length, workspace.network);
    workspace.logits.reserve(lattice.candidates);
    float* scores = workspace.logits.data();
    for (std::size_t slot = first; slot < last; ++slot, states += width) {
        const std::size_t count = lattice.count_candidates(slot);
        float best = MINUS_INFINITY;
        for (std::size_t k = 0; k < count; ++k) {
            scores[k] = dot(states, embedding_of(lattice.tokens(slot)[k]), width) +
                        static_cast<float>(lattice.log_probs[slot * lattice.candidates + k]);
            best = std::max(best, scores[k]);
        }
        for (std::size_t k = 0; k < count; ++k)
            if (scores[k] >= best - rules_.candidate_threshold) lattice.selected[slot].push_back(k);
    }
}

// The part that needs candidates but not the source.
void LatticeScoring::prepare(SentenceLattice& lattice, Workspace& workspace) const {
    lattice.width = round_up_to_vectors(lattice.candidates);
    for (std::size_t slot = 0; slot < slots_looked_up(lattice); ++slot) lattice.counts.push_back(lattice.count_candidates(slot));
    lattice.start.reserve(lattice.width), lattice.exits.reserve(lattice.max_length * lattice.width);
    lattice.edges.reserve(lattice.max_length * lattice.candidates * lattice.width);
    std::fill_n(lattice.start.data(), lattice.width, MINUS_INFINITY);
    std::fill_n(lattice.exits.data(), lattice.max_length * lattice.width, MINUS_INFINITY);
    lattice.counts.resize(slots_read(lattice.max_length));
    if (rules_.normaliser != Normaliser::UNION) return;
    std::vector<std::int64_t> tokens{rules_.eos};
    for (std::size_t slot = 0; slot < lattice.max_length; ++slot)
        tokens.insert(tokens.end(), lattice.tokens(slot), lattice.tokens(slot) + lattice.counts[slot]);
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    workspace.weights.clear();
    for (const std::int64_t token : tokens) workspace.weights.push_back(embedding_of(token));
    lattice.union_vocabulary.pack(workspace.weights, nullptr, network_.network.shape.width);
}

void LatticeScoring::score(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const {
    workspace.rows.clear();
    for (std::size_t slot = first; slot < last; ++slot) {
        if (slot == 0) workspace.rows.push_back({rules_.bos, 0});
        for (std::size_t k = 0; slot > 0 && k < lattice.counts[slot - 1]; ++k)
            workspace.rows.push_back({lattice.tokens(slot - 1)[k], slot});
    }
    const float* states = network_.states(workspace.rows, lattice.cross_cache, lattice.length, workspace.network);
    accumulate_log_sums(lattice, states, workspace.rows.size(), workspace);
    std::size_t row = 0;
    for (std::size_t slot = first; slot < last; ++slot) {
        const std::size_t rows = slot == 0 ? 1 : lattice.counts[slot - 1];
        score_slot(lattice, slot, states + row * network_.network.shape.width, rows, workspace.sums.data() + row, workspace);
        row += rows;
    }
}

// Sum over the tokens that are not candidates of the slot.
void LatticeScoring::accumulate_log_sums(const SentenceLattice& lattice, const float* states, std::size_t rows,
                                         Workspace& workspace) const {
    workspace.sums.assign(rows, LogSum());
    const Normaliser kind = rules_.normaliser;
    if (kind == Normaliser::NONE || kind == Normaliser::LOCAL) return;
    const PackedMatrix& vocabulary = kind == Normaliser::FULL ? network_.network.vocabulary : lattice.union_vocabulary;
    const std::size_t width = network_.network.shape.width, tile = TILE_PANELS * vocabulary.panel_width();
    workspace.logits.reserve(rows * tile);
    for (std::size_t panel = 0; panel < vocabulary.panels(); panel += TILE_PANELS) {
        const std::size_t end = std::min(vocabulary.panels(), panel + TILE_PANELS);
        const std::size_t columns =
            std::min(vocabulary.outputs(), end * vocabulary.panel_width()) - panel * vocabulary.panel_width();
        vocabulary.multiply_panels(states, width, rows, workspace.logits.data(), tile, panel, end);
        for (std::size_t row = 0; row < rows; ++row) workspace.sums[row].add(workspace.logits.data() + row * tile, columns);
    }
}

// From the states of the rows of a slot, score its candidates and the exits before it.
void LatticeScoring::score_slot(SentenceLattice& lattice, std::size_t slot, const float* states, std::size_t rows, LogSum* sums,
                                Workspace& workspace) const {
    const std::size_t width = network_.network.shape.width;
    const bool local = rules_.normaliser == Normaliser::LOCAL, has_candidates = slot < slots_read(lattice.max_length);
    const std::size_t count = has_candidates ? lattice.counts[slot] : 0;
    float* scores = slot == 0 ? lattice.start.data() : lattice.edges.data() + (slot - 1) * lattice.candidates * lattice.width;
    if (has_candidates) {
        workspace.weights.assign(lattice.width, zeros_.data());
        for (std::size_t k = 0; k < count; ++k) workspace.weights[k] = embedding_of(lattice.tokens(slot)[k]);
        workspace.slot_vocabulary.pack(workspace.weights, nullptr, width);
        gemm(workspace.slot_vocabulary, QuantizedMatrix(workspace.slot_vocabulary, network_.precision()), states, rows, scores,
             Epilogue::STORE, workspace.network.scratch);
        workspace.score_offsets.reserve(lattice.width);
        for (std::size_t k = 0; k < lattice.width; ++k)
            workspace.score_offsets.data()[k] =
                k < count ? rules_.token_bonus + weighted(lattice.log_probs[slot * lattice.candidates + k], rules_.count_weight)
                          : MINUS_INFINITY;
    }
    const bool may_end = slot > 0 && (all_exits_ || (slot >= lattice.min_length && slot <= lattice.max_length));
    for (std::size_t row = 0; row < rows; ++row) {
        const float eos = may_end || local ? dot(states + row * width, eos_, width) : 0.0F;
        float* to = scores + row * lattice.width;
        if (local) sums[row].add(&eos, 1), sums[row].add(to, count);
        const float normaliser = rules_.normaliser == Normaliser::NONE ? 0.0F : sums[row].value();
        if (may_end) lattice.exits.data()[(slot - 1) * lattice.width + row] = eos - normaliser;
        for (std::size_t k = 0; has_candidates && k < lattice.width; k += STEP)
            store(to + k, load(to + k) - normaliser + load(workspace.score_offsets.data() + k));
    }
}

}  // namespace fewstep
