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

// Build the tree of the `nodes` paths with the highest products of probabilities. `tokens` and `probabilities` [positions,branches]
// are the candidates of each position, best first; negative tokens are left out. Nothing follows eos. Ties keep the parent.
DraftTree best_tree(std::span<const std::int64_t> tokens, std::span<const float> probabilities, std::size_t branches,
                    std::size_t nodes, std::int64_t eos);

}  // namespace fewstep
