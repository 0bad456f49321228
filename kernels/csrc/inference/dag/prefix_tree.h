// A tree of output prefixes: a node is the prefix of its parent and one more token.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// Nodes are numbered in the order of creation, parents before children. The root, the empty prefix, is node 0.
class PrefixTree {
  public:
    using Index = std::int32_t;
    static constexpr Index NONE = -1;

    struct Node {
        double value;  // of a ScaledFloat: the probability of all paths so far that emit the prefix
        std::int32_t exponent;
        Index entry;  // index among the entries of the last vertex that it reached
        Index parent, length;
        Index child_group;  // the newest of its child groups
        NgramState state;   // n-gram state after its tokens,
        double ngram;       // and their log-probability
    };

    // Reset to a tree with only a root.
    void reset(NgramState state);

    Node& operator[](Index node) { return nodes_[node]; }
    Index size() const { return static_cast<Index>(nodes_.size()); }
    std::size_t bytes() const { return nodes_.capacity() * sizeof(Node); }

    // Return the child of a node for a token. Children are created in groups; those from `first_new` on are not yet closed to a
    // group.
    Index child(Index parent, Index token, Index first_new, const NgramScorer* ngram) {
        for (Index node = first_new; node < size(); ++node) {
            if (tokens_[node] == token) return node;
        }
        for (Index at = nodes_[parent].child_group; at != NONE; at = child_groups_[at].older) {
            for (Index node = child_groups_[at].first; node < child_groups_[at].end; ++node) {
                if (tokens_[node] == token) return node;
            }
        }
        return add(parent, token, ngram);
    }
    void close_children(Index parent, Index first_new);

    void read(Index node, std::vector<Index>& tokens) const;

    // Remove all nodes except `retained` ones, nodes that may get children (`growing`) with their descendants, and the ancestors of
    // both. Keep the order of the others. Return by node the number of retained nodes before it, and last the total.
    std::vector<Index> compact(std::vector<char> retained, std::vector<char> growing);

  private:
    struct ChildGroup {  // children created at one vertex: nodes [first, end)
        Index first, end, older;
    };

    Index add(Index parent, Index token, const NgramScorer* ngram);
    void renumber_child_groups(const std::vector<Index>& indices, const std::vector<char>& growing);

    std::vector<Node> nodes_;
    std::vector<Index> tokens_;  // by node
    std::vector<ChildGroup> child_groups_;
};

}  // namespace fewstep
