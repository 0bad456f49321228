// Trees of drafts (SpecInfer, Miao et al. 2024; EAGLE-2, Li et al. 2024): several candidates for a position, verified in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fewstep {

// Drafted tokens, breadth-first. Node 0, the root, is the last token of the output and has no entry; node n > 0 has token
// `tokens[n - 1]` and follows node `parents[n - 1]` < n. Without parents the tokens are a chain.
struct DraftTree {
    std::vector<std::int64_t> tokens;
    std::vector<std::size_t> parents;

    std::size_t size() const { return tokens.size(); }
    std::size_t parent(std::size_t node) const { return parents.empty() ? node - 1 : parents[node - 1]; }
    std::size_t depth(std::size_t node) const;
    // Return the child of a node with this token, or 0.
    std::size_t child(std::size_t node, std::int64_t token) const;
    // Return whether a node has a child.
    bool has_children(std::size_t node) const;
};

// A tree of drafts that grows by levels: the candidates of the best nodes of the last level, by the product of the probabilities
// on their paths, are the next level; the best candidates of all levels are the tree.
class TreeGrowth {
  public:
    // `nodes`: size of the tree. Nothing follows `eos`.
    TreeGrowth(std::size_t nodes, std::int64_t eos) : nodes_(nodes), eos_(eos) {}

    // Add candidates of the expanded nodes of the last level, at first of the root: `tokens` and `probabilities` [branches] for
    // all of them, or [nodes,branches] for each; negative tokens are left out. Expand the `expanded` best of the new level.
    void extend(std::span<const std::int64_t> tokens, std::span<const float> probabilities, std::size_t branches,
                std::size_t expanded);
    // Return the tree of all expanded nodes; the last `level_size()` of them are those of the last level.
    const DraftTree& expanded() const { return expanded_; }
    std::size_t level_size() const { return level_.size(); }
    // Return the tree of the best candidates. A candidate is less probable than its parent, or equal and later, so that its parent
    // is in the tree.
    DraftTree best() const;

  private:
    struct Candidate {
        std::int64_t token;
        std::size_t parent;  // index in all candidates plus 1; 0: the root
        float score;         // log-probability of the path
    };
    struct Expanded {
        std::size_t candidate, node;  // index in all candidates plus 1, and its number in the tree of expanded nodes; 0: the root
        float score;
    };

    std::size_t nodes_;
    std::int64_t eos_;
    std::vector<Candidate> candidates_;
    std::vector<Expanded> level_{{0, 0, 0.0F}};
    DraftTree expanded_;
};

}  // namespace fewstep
