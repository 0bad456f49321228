// Beam search for the best output of a graph of vertices, summed over all its paths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/dag/candidates.h"
#include "csrc/inference/dag/message_queues.h"
#include "csrc/inference/dag/scaled_float.h"
#include "csrc/inference/dag/prefix_tree.h"
#include "csrc/inference/dag/repeat_rules.h"
#include "csrc/inference/ngram/model.h"

namespace fewstep {

// An output of n tokens scores (log P(Y) + ngram_weight * log P_ngram(Y </s>)) / length^length_penalty (Huang et al. 2022, equation
// 11), with a length of n + 1, or n + 2 where the begin of the sentence counts.
struct DagBeamOptions {
    std::int64_t beam_size = 200;        // prefixes that live on at a vertex,
    std::int64_t beams_per_length = 10;  // and of one length
    std::int64_t candidates = 5;         // best ones of a vertex that are followed,
    double top_p = 0.9;                  // until they hold this much probability; 1: all
    double length_penalty = 1;
    bool count_begin = false;
    double ngram_weight = 0;
    std::int64_t n_best = 1;
    bool deduplicate = false;  // collapse adjacent repeats of outputs
    RepeatRules rules;
};

struct DagHypothesis {
    double score;
    std::vector<std::int64_t> ids;
};

// A search, with the memory of one thread. Prefixes are the nodes of a tree, so that a prefix holds the probability of all its
// paths: s_v(prefix) of those that end at vertex v, for v in ascending order
//
//     s_next(prefix token) += s_v(prefix) * exp(score)        for each candidate (next, token) of v
//
// Before that the prefixes at v are ranked, by the score of an output without its end, with the probability of all paths so far
// whatever vertex they end at. The best of each length live on at v, then the best of all; the earlier node wins a tie. What a
// prefix has already given to later vertices stays. Outputs are ranked by their probability at the last vertex alone.
class DagBeam {
  public:
    explicit DagBeam(const DagBeamOptions& options) : options_(options) {}

    // The n best outputs, best first, distinct; none where no path leads to the last vertex. `ngram` may be null.
    std::vector<DagHypothesis> search(const DagCandidates& sentence, const NgramScorer* ngram);

    // Is its memory small enough to be kept for another sentence?
    bool is_reusable() const { return tree_.bytes() + queues_.bytes() <= std::size_t{1} << 24; }

  private:
    using Index = PrefixTree::Index;

    struct BeamEntry {   // a prefix at the vertex that is searched
        double value;  // its mass there
        std::int32_t exponent, key;
        Index node, length;
    };
    struct Transition {
        ScaledFloat scaled;
        double probability;
        Index next, token;
    };
    struct RankThreshold {  // what has a larger key passes, and what has this one and is no later node
        std::int32_t key;
        Index node;
        bool passes(const BeamEntry& one) const { return one.key > key || (one.key == key && one.node <= node); }
    };

    void reset(std::int64_t vertices);
    void drop_unreachable();
    void read_transitions(const DagCandidates& sentence, std::int64_t vertex);
    void collect_entries(Index vertex);
    void prune();
    void prune_lengths();
    RankThreshold rank_threshold(std::span<const std::int32_t> keys, std::int64_t count, Index length);
    void expand(const BeamEntry& from);
    bool banned(const Transition& transition) const;
    void extend(const BeamEntry& from, const Transition& transition, Index first_new);
    std::vector<DagHypothesis> best_outputs();

    DagBeamOptions options_;
    const NgramScorer* ngram_ = nullptr;
    Index last_ = 0;  // vertex
    PrefixTree tree_;
    Index node_limit_ = 0;  // nodes that there may be before those that nothing can reach are forgotten
    MessageQueues queues_;
    std::vector<BeamEntry> entries_;
    std::vector<DagCandidate> valid_;
    std::vector<Transition> transitions_;        // of the vertex that is searched
    std::vector<Index> history_;     // tokens of the prefix that is expanded
    std::vector<double> penalties_;  // 1 / length^length_penalty by tokens
    std::vector<Index> ends_;        // by length: where its keys end
    std::vector<std::int32_t> keys_;
    std::vector<RankThreshold> thresholds_;  // by length
    std::vector<Index> tied_;
};

}  // namespace fewstep
