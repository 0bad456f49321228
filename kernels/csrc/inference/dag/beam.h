// Beam search for the most probable output of a DAG, summed over all its paths (Huang et al. 2022, section 3.3 and appendix B).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "csrc/inference/dag/candidates.h"
#include "csrc/inference/dag/prefix_tree.h"
#include "csrc/inference/ngram/model.h"

namespace fewstep {

// Queues of probability that is passed to later vertices.

// The probability (ScaledFloat) of a prefix on its way to a vertex.
struct DagMessage {
    double value;
    std::int32_t exponent, node;
};

// A queue of messages per vertex, in first-in first-out order. Chunks are recycled, so memory is bounded by the maximum number of
// pending messages.
class MessageQueues {
  public:
    void reset(std::int64_t vertices) {
        chunks_.clear();
        free_ = NONE;
        queues_.assign(static_cast<std::size_t>(vertices), {});
    }

    void push(std::int32_t vertex, const DagMessage& message) {
        Queue& queue = queues_[vertex];
        if (queue.last == NONE || chunks_[queue.last].count == CHUNK_SIZE) append_chunk(queue);
        Chunk& chunk = chunks_[queue.last];
        chunk.messages[chunk.count++] = message;
    }

    bool empty(std::int32_t vertex) const { return queues_[vertex].first == NONE; }

    template <typename Read>
    void for_each(std::int32_t vertex, const Read& read) {
        for (std::int32_t at = queues_[vertex].first; at != NONE; at = chunks_[at].next) {
            Chunk& chunk = chunks_[at];
            for (std::int32_t i = 0; i < chunk.count; ++i) read(chunk.messages[i]);
        }
    }

    // Empty a queue that is not empty.
    void clear(std::int32_t vertex) {
        Queue& queue = queues_[vertex];
        chunks_[queue.last].next = std::exchange(free_, queue.first);
        queue = {};
    }

    // At most this many messages are held.
    std::size_t messages() const { return chunks_.size() * CHUNK_SIZE; }
    std::size_t bytes() const { return chunks_.capacity() * sizeof(Chunk); }

  private:
    static constexpr std::int32_t NONE = -1, CHUNK_SIZE = 64;

    struct Chunk {
        std::array<DagMessage, CHUNK_SIZE> messages;
        std::int32_t count, next;
    };
    struct Queue {
        std::int32_t first = NONE, last = NONE;  // indices of chunks
    };

    void append_chunk(Queue& queue) {
        const std::int32_t chunk = free_ == NONE ? static_cast<std::int32_t>(chunks_.size()) : free_;
        if (free_ == NONE) {
            chunks_.emplace_back();
        } else {
            free_ = chunks_[chunk].next;
        }
        chunks_[chunk].count = 0;
        chunks_[chunk].next = NONE;
        (queue.last == NONE ? queue.first : chunks_[queue.last].next) = chunk;
        queue.last = chunk;
    }

    std::vector<Queue> queues_;
    std::vector<Chunk> chunks_;
    std::int32_t free_ = NONE;  // head of the list of free chunks
};

// An output of n tokens scores (log P(Y) + ngram_weight * log P_ngram(Y </s>)) / length^length_penalty (Huang et al. 2022, equation
// 11); its length is n + 1, or n + 2 with `count_begin`.
struct DagBeamOptions {
    std::int64_t beam_size = 200;        // prefixes kept at a vertex,
    std::int64_t beams_per_length = 10;  // and among those of one length
    std::int64_t candidates = 5;         // best candidates of a vertex that are expanded,
    double top_p = 0.9;                  // until their probabilities sum to this; 1: all
    double length_penalty = 1;
    bool count_begin = false;
    double ngram_weight = 0;
    std::int64_t n_best = 1;
    bool deduplicate = false;  // collapse adjacent repeats in outputs
    RepeatRules rules;
};

struct DagHypothesis {
    double score;
    std::vector<std::int64_t> ids;
};

// A search with the memory of one thread. Prefixes are nodes of a tree, so that a prefix accumulates the probability of all its
// paths. With s_v(prefix) over the paths that end at vertex v, for v in ascending order
//     s_next(prefix token) += s_v(prefix) * exp(score)        for each candidate (next, token) of v
// Before its expansion, the prefixes at v are ranked by the score of an output without its end, using the probability of all their
// paths so far, at whatever vertex they end. The best of each length are kept, then the best of all; the earlier node wins a tie.
// The probability that a dropped prefix has already passed to later vertices remains. Outputs are ranked by their probability at
// the last vertex.
class DagBeam {
  public:
    explicit DagBeam(const DagBeamOptions& options) : options_(options) {}

    // Return the n best distinct outputs, best first; empty if no path reaches the last vertex. `ngram` may be null.
    std::vector<DagHypothesis> search(const DagCandidates& sentence, const NgramScorer* ngram);

    // Return whether the memory is small enough to be kept for another sentence.
    bool is_reusable() const { return tree_.bytes() + queues_.bytes() <= std::size_t{1} << 24; }

  private:
    using Index = PrefixTree::Index;

    struct BeamEntry {  // a prefix at the current vertex
        double value;   // its probability there
        std::int32_t exponent, key;
        Index node, length;
    };
    struct Transition {
        ScaledFloat scaled;
        double probability;
        Index next, token;
    };
    struct RankThreshold {  // passed by larger keys, and by this key up to this node
        std::int32_t key;
        Index node;
        bool passes(const BeamEntry& one) const { return one.key > key || (one.key == key && one.node <= node); }
    };

    void reset(std::int64_t vertices);
    void drop_unreachable();
    void read_transitions(const DagCandidates& sentence, std::int64_t vertex);
    void require_space() const;
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
    Index last_ = 0;  // last vertex
    PrefixTree tree_;
    Index node_limit_ = 0;  // nodes in the tree before unreachable ones are dropped
    MessageQueues queues_;
    std::vector<BeamEntry> entries_;
    std::vector<DagCandidate> valid_;
    std::vector<Transition> transitions_;  // of the current vertex
    std::vector<Index> history_;           // tokens of the expanded prefix
    std::vector<double> penalties_;        // by number of tokens: 1 / length^length_penalty
    std::vector<Index> ends_;              // by length: end of its keys
    std::vector<std::int32_t> keys_;
    std::vector<RankThreshold> thresholds_;  // by length
    std::vector<Index> tied_;
};

}  // namespace fewstep
