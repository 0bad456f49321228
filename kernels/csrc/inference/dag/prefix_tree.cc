#include "csrc/inference/dag/prefix_tree.h"

#include <utility>

#include "csrc/inference/dag/scaled_float.h"

namespace fewstep {

void PrefixTree::start(NgramState state) {
    nodes_.assign(1, {1, 0, 0, NONE, 0, NONE, state, 0});
    tokens_.assign(1, NONE);
    broods_.clear();
}

PrefixTree::Index PrefixTree::add(Index parent, Index token, const NgramScorer* ngram) {
    const Node& of = nodes_[parent];
    Node node{0, NO_MASS, 0, parent, of.length + 1, NONE, NgramModel::EMPTY, 0};
    if (ngram) node.ngram = of.ngram + ngram->score(of.state, static_cast<std::uint32_t>(token), node.state);
    nodes_.push_back(node);
    tokens_.push_back(token);
    return size() - 1;
}

void PrefixTree::close_brood(Index parent, Index first_new) {
    if (size() == first_new) return;
    broods_.push_back({first_new, size(), nodes_[parent].brood});
    nodes_[parent].brood = static_cast<Index>(broods_.size()) - 1;
}

void PrefixTree::read(Index node, std::vector<Index>& tokens) const {
    tokens.resize(static_cast<std::size_t>(nodes_[node].length));
    for (std::size_t at = tokens.size(); at-- > 0; node = nodes_[node].parent) tokens[at] = tokens_[node];
}

std::vector<PrefixTree::Index> PrefixTree::keep(std::vector<char> held, std::vector<char> grows) {
    const Index count = size();
    for (Index node = 1; node < count; ++node) grows[node] |= grows[nodes_[node].parent];
    held[0] = 1;
    for (Index node = count - 1; node > 0; --node) {
        held[node] |= grows[node];
        held[nodes_[node].parent] |= held[node];
    }
    std::vector<Index> indices(1, 0);
    for (const char kept : held) indices.push_back(indices.back() + kept);
    renumber_broods(indices, grows);
    for (Index node = 0; node < count; ++node) {
        if (!held[node]) continue;
        nodes_[indices[node]] = nodes_[node];
        tokens_[indices[node]] = tokens_[node];
        if (node > 0) nodes_[indices[node]].parent = indices[nodes_[node].parent];
    }
    nodes_.resize(static_cast<std::size_t>(indices.back()));
    tokens_.resize(nodes_.size());
    return indices;
}

// Nodes that grow no more need no broods.
void PrefixTree::renumber_broods(const std::vector<Index>& indices, const std::vector<char>& grows) {
    std::vector<Brood> kept;
    for (Index node = 0; node < size(); ++node) {
        Index at = std::exchange(nodes_[node].brood, NONE);
        for (; grows[node] && at != NONE; at = broods_[at].older) {
            const Index first = indices[broods_[at].first], end = indices[broods_[at].end];
            if (first == end) continue;
            kept.push_back({first, end, nodes_[node].brood});
            nodes_[node].brood = static_cast<Index>(kept.size()) - 1;
        }
    }
    broods_.swap(kept);
}

}  // namespace fewstep
