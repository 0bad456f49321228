// Scores of a lattice (Deng and Rush 2021): of all candidates of a slot after each candidate of the previous slot, and of ending
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/base/buffer.h"
#include "csrc/inference/gemm/packed_matrix.h"
#include "csrc/inference/lattice/network.h"

namespace fewstep {

// The lattice of one sentence during decoding.

// Candidates, folded cross-attention and scores.
struct SentenceLattice {
    const std::int64_t* token_ids;
    const double* log_probs;
    std::size_t slots, min_length, max_length;  // number of slots N; limits in tokens
    std::size_t candidates, width;              // K, and K rounded up
    std::vector<std::size_t>
        counts;  // by slot: number of candidates, also of the slot after the last token if EOS competes with them
    std::vector<std::vector<std::size_t>> selected;  // by slot: selected candidates; empty if none were dropped
    std::vector<std::int64_t> selected_ids;
    std::vector<double> selected_log_probs;
    std::size_t length;
    std::vector<LatticeCrossCache> cross_cache;
    PackedMatrix union_vocabulary;  // EOS and all candidates, for Normaliser::UNION
    Buffer start, edges, exits;     // [width], [max_length-1,K,width], [max_length,width]

    const std::int64_t* tokens(std::size_t slot) const { return token_ids + slot * candidates; }
    std::size_t count_candidates(std::size_t slot) const;  // number of candidates of a slot
    std::size_t original_index(std::size_t slot, std::size_t k) const { return selected.empty() ? k : selected[slot][k]; }
    // Drop all candidates that are not selected.
    void apply_selection();
    float* edge_row(std::size_t slot, std::size_t candidate) { return edges.data() + (slot * candidates + candidate) * width; }
};

// The tokens over which the logits z of a row are normalised: log P(y) = z(y) - log sum_u e^z(u).
enum class Normaliser {
    FULL,   // the whole vocabulary, in tiles
    UNION,  // EOS and the candidates of all slots of the sentence
    LOCAL,  // EOS and the candidates of the predicted slot, also of the slot after the last token
    NONE    // unnormalised logits
};

struct LatticeRules {
    Normaliser normaliser = Normaliser::FULL;
    float count_weight = 0.0F;  // weight of the log-probability of a candidate by the counts
    float token_bonus = 0.0F;   // added to the score of every token
    float candidate_threshold =
        std::numeric_limits<float>::infinity();  // drop candidates this far below the best of their slot, scored without context
    std::int64_t bos = 1, eos = 2;
};

// log sum e^x, accumulated over parts.
class LogSum {
  public:
    void add(const float* x, std::size_t count);
    float value() const;

  private:
    float top_ = -std::numeric_limits<float>::infinity(), sum_ = 0.0F;
};

// Scores sentences with a network; with `all_exits` also exits where no path may end.
class LatticeScoring {
  public:
    // Scratch memory of a thread.
    struct Workspace {
        LatticeNetwork::Workspace network;
        std::vector<LatticeNetwork::Row> rows;
        std::vector<const float*> weights;
        PackedMatrix slot_vocabulary;
        Buffer logits, score_offsets;
        std::vector<LogSum> sums;
    };

    LatticeScoring(const LatticeNetwork& network, const LatticeRules& rules, bool all_exits);

    // Return the number of slots whose candidates are read, for `max_length` tokens, and how many of them were looked up.
    std::size_t slots_read(std::size_t max_length) const {
        return max_length + (max_length > 0 && rules_.normaliser == Normaliser::LOCAL ? 1 : 0);
    }
    std::size_t slots_looked_up(const SentenceLattice& lattice) const;

    // Select the candidates of slots [first,last) within the threshold, scored by network and counts after BOS, into `selected`, in
    // their order.
    void select_candidates(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const;
    // The part that needs candidates but not the source.
    void prepare(SentenceLattice& lattice, Workspace& workspace) const;
    // Score starts, edges and exits of slots [first,last), which may include the slot after the last token.
    void score(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const;

  private:
    const float* embedding_of(std::int64_t token) const;
    void accumulate_log_sums(const SentenceLattice& lattice, const float* states, std::size_t rows, Workspace& workspace) const;
    void score_slot(SentenceLattice& lattice, std::size_t slot, const float* states, std::size_t rows, LogSum* sums,
                    Workspace& workspace) const;

    const LatticeNetwork& network_;
    const LatticeRules& rules_;
    bool all_exits_;
    const float* eos_;
    std::vector<float> zeros_;
};

}  // namespace fewstep
