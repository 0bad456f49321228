// Scores of a lattice (Deng and Rush 2021): of all candidates of a slot after each of the slot before, and of ending there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "csrc/base/buffer.h"
#include "csrc/inference/lattice/network.h"
#include "csrc/inference/lattice/sentence_lattice.h"
#include "csrc/inference/gemm/packed_matrix.h"

namespace fewstep {

// Over what the logits z of a row are normalised: log P(y) = z(y) - log sum_u e^z(u).
enum class Normaliser {
    FULL,   // the whole vocabulary, a stretch of it at a time
    UNION,  // EOS and the candidates of all slots of the sentence
    LOCAL,  // EOS and the candidates of the slot that is predicted, also of the one behind the last word
    NONE    // the logits as they are
};

struct LatticeRules {
    Normaliser normaliser = Normaliser::FULL;
    float count_weight = 0.0F;  // of the logarithm of a candidate's probability by the counts, added to the scores that enter it
    float token_bonus = 0.0F;    // added to the scores that enter any word
    float candidate_threshold = std::numeric_limits<float>::infinity();  // candidates so much less likely than the best, before words are known, are left out
    std::int64_t bos = 1, eos = 2;
};

// log sum e^x, of stretches that come one after the other.
class LogSum {
 public:
    void add(const float* x, std::size_t count);
    float value() const;

 private:
    float top_ = -std::numeric_limits<float>::infinity(), sum_ = 0.0F;
};

// What a network says of sentences by the rules; `all_exits`: also of ending where no path may.
class LatticeScoring {
 public:
    // A thread's scratch.
    struct Workspace {
        LatticeNetwork::Workspace network;
        std::vector<LatticeNetwork::Row> rows;
        std::vector<const float*> weights;
        PackedMatrix slot_vocabulary;
        Buffer logits, score_offsets;
        std::vector<LogSum> sums;
    };

    LatticeScoring(const LatticeNetwork& network, const LatticeRules& rules, bool all_exits);

    // Slots whose candidates are read, of `most` words; and those of them that were looked up.
    std::size_t slots_read(std::size_t max_length) const { return max_length + (max_length > 0 && rules_.normaliser == Normaliser::LOCAL ? 1 : 0); }
    std::size_t slots_looked_up(const SentenceLattice& lattice) const;

    // The candidates of slots [first,last) that are likely after no word by network and counts together, into `chosen`, in their order.
    void select_candidates(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const;
    // What needs candidates, but no source.
    void prepare(SentenceLattice& lattice, Workspace& workspace) const;
    // Starts, edges and exits of slots [first,last), that behind the last word among them.
    void score(SentenceLattice& lattice, std::size_t first, std::size_t last, Workspace& workspace) const;

 private:
    const float* embedding_of(std::int64_t token) const;
    void accumulate_log_sums(const SentenceLattice& lattice, const float* states, std::size_t rows, Workspace& workspace) const;
    void score_slot(SentenceLattice& lattice, std::size_t slot, const float* states, std::size_t rows, LogSum* sums, Workspace& workspace) const;

    const LatticeNetwork& network_;
    const LatticeRules& rules_;
    bool all_exits_;
    const float* eos_;
    std::vector<float> zeros_;
};

}  // namespace fewstep
