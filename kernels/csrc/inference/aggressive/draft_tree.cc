#include "csrc/inference/aggressive/draft_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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

void TreeGrowth::extend(std::span<const std::int64_t> tokens, std::span<const float> probabilities, std::size_t branches,
                        std::size_t expanded) {
    struct Child {
        Candidate candidate;
        std::size_t parent_node;
    };
    const std::size_t stride = tokens.size() > branches ? branches : 0;
    std::vector<Child> children;
    for (std::size_t index = 0; index < level_.size(); ++index)
        for (std::size_t place = index * stride; place < index * stride + branches; ++place)
            if (tokens[place] >= 0 && probabilities[place] > 0.0F)
                children.push_back({{tokens[place], level_[index].candidate, level_[index].score + std::log(probabilities[place])},
                                    level_[index].node});
    std::stable_sort(children.begin(), children.end(),
                     [](const Child& one, const Child& other) { return one.candidate.score > other.candidate.score; });
    children.resize(std::min(children.size(), nodes_));  // neither the others nor what follows them can be in the tree
    level_.clear();
    for (const auto& [candidate, parent_node] : children) {
        candidates_.push_back(candidate);
        if (candidate.token == eos_ || level_.size() == expanded) continue;
        expanded_.tokens.push_back(candidate.token);
        expanded_.parents.push_back(parent_node);
        level_.push_back({candidates_.size(), expanded_.size(), candidate.score});
    }
}

DraftTree TreeGrowth::best() const {
    std::vector<std::size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](std::size_t one, std::size_t other) { return candidates_[one].score > candidates_[other].score; });
    order.resize(std::min(order.size(), nodes_));
    std::sort(order.begin(), order.end());
    DraftTree tree;
    std::vector<std::size_t> numbers(candidates_.size() + 1);
    for (const std::size_t index : order) {
        numbers[index + 1] = tree.size() + 1;
        tree.parents.push_back(numbers[candidates_[index].parent]);
        tree.tokens.push_back(candidates_[index].token);
    }
    return tree;
}

}  // namespace fewstep
