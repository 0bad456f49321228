#include "csrc/inference/aggressive/sentence_state.h"

#include <algorithm>
#include <cmath>

namespace fewstep {

std::size_t DraftTree::depth(std::size_t node) const {
    if (parents.empty()) return node;
    std::size_t depth = 0;
    for (; node > 0; node = parent(node)) ++depth;
    return depth;
}

std::size_t DraftTree::child(std::size_t node, std::int64_t token) const {
    for (std::size_t other = node + 1; other <= size(); ++other)
        if (parent(other) == node && tokens[other - 1] == token) return other;
    return 0;
}

bool DraftTree::has_children(std::size_t node) const {
    for (std::size_t other = node + 1; other <= size(); ++other)
        if (parent(other) == node) return true;
    return false;
}

namespace {

struct Candidate {
    std::int64_t token;
    std::size_t parent;  // index in all candidates plus 1; 0: the root
    float score;         // log-probability of the path
};

}  // namespace

DraftTree best_tree(std::span<const std::int64_t> tokens, std::span<const float> probabilities, std::size_t branches,
                    std::size_t nodes, std::int64_t eos) {
    std::vector<Candidate> all, level{{-1, 0, 0.0F}};
    const auto better = [](const Candidate& one, const Candidate& other) { return one.score > other.score; };
    std::size_t first = 0;  // index plus 1 of the first candidate of the last level; 0: the root
    for (std::size_t start = 0; start < tokens.size() && !level.empty(); start += branches) {
        std::vector<Candidate> next;
        for (std::size_t index = 0; index < level.size(); ++index)
            for (std::size_t rank = 0; rank < branches && level[index].token != eos; ++rank)
                if (tokens[start + rank] >= 0 && probabilities[start + rank] > 0.0F)
                    next.push_back(
                        {tokens[start + rank], first + index, level[index].score + std::log(probabilities[start + rank])});
        std::stable_sort(next.begin(), next.end(), better);
        next.resize(std::min(next.size(), nodes));
        first = all.size() + 1;
        all.insert(all.end(), next.begin(), next.end());
        level = std::move(next);
    }
    std::vector<std::size_t> order(all.size());
    for (std::size_t index = 0; index < order.size(); ++index) order[index] = index;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) { return better(all[one], all[other]); });
    order.resize(std::min(order.size(), nodes));
    std::sort(order.begin(), order.end());
    DraftTree tree;
    std::vector<std::size_t> numbers(all.size() + 1);
    for (const std::size_t index : order) {
        numbers[index + 1] = tree.size() + 1;
        tree.parents.push_back(numbers[all[index].parent]);
        tree.tokens.push_back(all[index].token);
    }
    return tree;
}

void SentenceState::write(std::int64_t token, std::int64_t eos, float token_score, const float* best) {
    score += token_score;
    if (best[1] > -std::numeric_limits<float>::infinity())
        margin = std::min(margin, static_cast<double>(best[0]) - static_cast<double>(best[1]));
    if (token == eos)
        ended = true;
    else
        tokens.push_back(token);
}

std::vector<SentenceState> initial_states(const std::vector<std::int64_t>& limits, std::int64_t width) {
    std::vector<SentenceState> states(limits.size());
    for (std::size_t position = 0; position < states.size(); ++position) {
        states[position].sentence = position, states[position].limit = limits[position], states[position].width = width;
        states[position].proposed_by_slot.resize(static_cast<std::size_t>(width)),
            states[position].accepted_by_slot.resize(static_cast<std::size_t>(width));
    }
    return states;
}

AggressiveOutcome outcome_of(SentenceState&& state, const BeamOptions& options) {
    const double whole = penalty(options, state.size() + state.ended);
    return {std::move(state.tokens),
            state.score / whole,
            state.margin,
            state.steps,
            state.num_drafted,
            state.num_accepted,
            state.fell_back,
            std::move(state.proposed_by_slot),
            std::move(state.accepted_by_slot)};
}

void add_times(AggressiveTimes& sum, const AggressiveTimes& times) {
    sum.encoder += times.encoder, sum.drafter_encoder += times.drafter_encoder, sum.drafter += times.drafter;
    sum.verifier += times.verifier, sum.rest += times.rest;
}

}  // namespace fewstep
