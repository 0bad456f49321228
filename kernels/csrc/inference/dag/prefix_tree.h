// Prefixes of outputs as the nodes of a tree: a node is its parent's prefix and one token more.
#pragma once

#include <cstdint>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// Nodes are numbered as they are made, parents before children. The root, the empty prefix, is number 0.
class PrefixTree {
  public:
    using Index = std::int32_t;
    static constexpr Index NONE = -1;

    struct Node {
        double value;  // of a mass (csrc/dag/mass.h): the probability of all paths so far that emit the prefix
        std::int32_t exponent;
        Index entry;  // among the prefixes at the vertex where it was met last
        Index parent, length;
        Index child_group;       // the newest of its broods
        NgramState state;  // what its tokens leave to the next one,
        double ngram;      // and the logarithm of their probability
    };

    // A tree of the root alone.
    void reset(NgramState state);

    Node& operator[](Index node) { return nodes_[node]; }
    Index size() const { return static_cast<Index>(nodes_.size()); }
    std::size_t bytes() const { return nodes_.capacity() * sizeof(Node); }

    // The child of a node for a token. Children are made brood by brood: those from `first_new` on are not closed to one yet.
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

    // Drops all nodes but those that are `held`, those that may get children (`grows`) or are below such a node, and the ancestors
    // of both. The others keep their order. By node: how many before it were kept; and at last the number of all.
    std::vector<Index> compact(std::vector<char> retained, std::vector<char> growing);

  private:
    struct ChildGroup {  // children made at one vertex: nodes [first, end)
        Index first, end, older;
    };

    Index add(Index parent, Index token, const NgramScorer* ngram);
    void renumber_child_groups(const std::vector<Index>& indices, const std::vector<char>& growing);

    std::vector<Node> nodes_;
    std::vector<Index> tokens_;  // of the nodes
    std::vector<ChildGroup> child_groups_;
};

}  // namespace fewstep
