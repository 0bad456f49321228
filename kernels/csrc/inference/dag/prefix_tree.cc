#include "csrc/inference/dag/prefix_tree.h"

#include <utility>

namespace fewstep {

void PrefixTree::reset(NgramState state) {
    nodes_.assign(1, {1, 0, 0, NONE, 0, NONE, state, 0});
    tokens_.assign(1, NONE);
    child_groups_.clear();
}

PrefixTree::Index PrefixTree::add(Index parent, Index token, const NgramScorer* ngram) {
    const Node& parent_node = nodes_[parent];
    Node node{0, ZERO_EXPONENT, 0, parent, parent_node.length + 1, NONE, NgramModel::EMPTY, 0};
    if (ngram) node.ngram = parent_node.ngram + ngram->score(parent_node.state, static_cast<std::uint32_t>(token), node.state);
    nodes_.push_back(node);
    tokens_.push_back(token);
    return size() - 1;
}

void PrefixTree::close_children(Index parent, Index first_new) {
    if (size() == first_new) return;
    child_groups_.push_back({first_new, size(), nodes_[parent].child_group});
    nodes_[parent].child_group = static_cast<Index>(child_groups_.size()) - 1;
}

void PrefixTree::read(Index node, std::vector<Index>& tokens) const {
    tokens.resize(static_cast<std::size_t>(nodes_[node].length));
    for (std::size_t at = tokens.size(); at-- > 0; node = nodes_[node].parent) tokens[at] = tokens_[node];
}

std::vector<PrefixTree::Index> PrefixTree::compact(std::vector<char> retained, std::vector<char> growing) {
    const Index count = size();
    for (Index node = 1; node < count; ++node) growing[node] |= growing[nodes_[node].parent];
    retained[0] = 1;
    for (Index node = count - 1; node > 0; --node) {
        retained[node] |= growing[node];
        retained[nodes_[node].parent] |= retained[node];
    }
    std::vector<Index> indices(1, 0);
    for (const char retained_groups : retained) indices.push_back(indices.back() + retained_groups);
    renumber_child_groups(indices, growing);
    for (Index node = 0; node < count; ++node) {
        if (!retained[node]) continue;
        nodes_[indices[node]] = nodes_[node];
        tokens_[indices[node]] = tokens_[node];
        if (node > 0) nodes_[indices[node]].parent = indices[nodes_[node].parent];
    }
    nodes_.resize(static_cast<std::size_t>(indices.back()));
    tokens_.resize(nodes_.size());
    return indices;
}

// Only nodes that can still get children need their child groups.
void PrefixTree::renumber_child_groups(const std::vector<Index>& indices, const std::vector<char>& growing) {
    std::vector<ChildGroup> retained_groups;
    for (Index node = 0; node < size(); ++node) {
        Index at = std::exchange(nodes_[node].child_group, NONE);
        for (; growing[node] && at != NONE; at = child_groups_[at].older) {
            const Index first = indices[child_groups_[at].first], end = indices[child_groups_[at].end];
            if (first == end) continue;
            retained_groups.push_back({first, end, nodes_[node].child_group});
            nodes_[node].child_group = static_cast<Index>(retained_groups.size()) - 1;
        }
    }
    child_groups_.swap(retained_groups);
}

}  // namespace fewstep
