// A tree of output prefixes: a node is the prefix of its parent and one more token.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// Floating-point numbers with an extended exponent, for products and sums of probabilities without logarithms.

// value * 2^(256 exponent) with value in [2^-128, 2^128): a positive number with at least the precision of a double.
struct ScaledFloat {
    double value = 1;
    std::int32_t exponent = 0;
};

inline constexpr double SCALED_MIN = 0x1p-128, SCALED_LIMIT = 0x1p128, SCALE_DOWN = 0x1p-256, SCALE_UP = 0x1p256;
inline constexpr std::int32_t ZERO_EXPONENT = -(1 << 30);  // exponent of an empty sum
inline constexpr double SCALE_LOG = 256 * 0.693147180559945309417;

inline ScaledFloat operator*(const ScaledFloat& one, const ScaledFloat& other) {
    ScaledFloat product{one.value * other.value, one.exponent + other.exponent};
    if (product.value < SCALED_MIN) {
        product.value *= SCALE_UP;
        --product.exponent;
    } else if (product.value >= SCALED_LIMIT) {
        product.value *= SCALE_DOWN;
        ++product.exponent;
    }
    return product;
}

// (value, exponent) += (more, more_exponent)
inline void add_scaled(double& value, std::int32_t& exponent, double more, std::int32_t more_exponent) {
    if (more_exponent == exponent) {
        value += more;
    } else if (more_exponent == exponent - 1) {
        value += more * SCALE_DOWN;
    } else if (more_exponent > exponent) {
        value = more + (more_exponent == exponent + 1 ? value * SCALE_DOWN : 0);
        exponent = more_exponent;
    }  // else the term is below the precision of the sum
    if (value >= SCALED_LIMIT) {
        value *= SCALE_DOWN;
        ++exponent;
    }
}

// exp(x) for |x| <= 1e9.
inline ScaledFloat scaled_exp(double x) {
    const double exponent = std::nearbyint(x / SCALE_LOG);
    return ScaledFloat{std::exp(x - exponent * SCALE_LOG), static_cast<std::int32_t>(exponent)} * ScaledFloat{};
}

inline double scaled_log(double value, std::int32_t exponent) { return std::log(value) + exponent * SCALE_LOG; }

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
