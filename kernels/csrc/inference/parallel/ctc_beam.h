// Prefix beam search over the slots of a CTC network (Graves 2012, section 7.5; with a language model Hannun et al. 2014).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "csrc/inference/ngram/model.h"

namespace fewstep {

// An output of n tokens scores (log P(Y) + ngram_weight * log P_ngram(Y </s>) + token_bonus * n) / (n + 1)^length_penalty.
struct CtcBeamOptions {
    std::int64_t beam_size = 20;  // prefixes kept at a slot
    double ngram_weight = 0;
    double token_bonus = 0;
    double length_penalty = 0;
    std::int64_t n_best = 1;
};

// The log-probabilities of the slots of one sentence. Tokens whose score is minus infinity or NaN are left out.
struct CtcSlots {
    const float* scores;            // [slots,width]
    const std::int64_t* token_ids;  // [slots,width]
    const float* blanks;            // [slots]
    std::int64_t slots, width;
    std::int64_t vocabulary;  // exclusive upper bound of token ids
};

struct CtcHypothesis {
    double score;
    std::vector<std::int64_t> ids;
};

// A search with the memory of one thread. For each prefix it keeps the log-probabilities of the alignments that end in a blank, b,
// and in the prefix's last token, t. A slot with log-probabilities p leads from each prefix to
//     b' of the prefix      += (b + t) p(blank)
//     t' of the prefix      += t p(last token)
//     t' of prefix + token  += (b + t) p(token),   b p(token) if the token equals the last one
// Equal prefixes are one entry, however they were reached. The best prefixes by log(b + t) + ngram_weight log P_ngram +
// token_bonus * n are kept; the lower ids win a tie.
class CtcBeam {
  public:
    explicit CtcBeam(const CtcBeamOptions& options) : options_(options) {}

    // Return the n best outputs, best first; empty if no output has a probability above 0. `ngram` may be null. Throws
    // std::invalid_argument for a token id that is negative or not below `vocabulary`.
    std::vector<CtcHypothesis> search(const CtcSlots& sentence, const NgramScorer* ngram);

  private:
    using Index = std::int32_t;

    struct Node {  // a prefix that was in the beam
        Index parent, token, length;
        NgramState state;
        double ngram;  // log P_ngram of the prefix
    };
    struct Entry {            // a prefix with its log-probabilities at the current slot
        Index node;           // NONE for one that was not in the beam before; it is then
        Index parent, token;  // its last token after the prefix of this node
        Index length;
        double blank, last;  // b and t
        double total, rank;  // log(b + t), and the score that it is ranked by
        double ngram;
        NgramState state;
    };
    struct Token {
        Index id;
        double score;
    };

    void reset();
    void read_tokens(const CtcSlots& sentence, std::int64_t slot);
    void extend(double blank);
    void extend_by(const Entry& from, const Token& token);
    Entry& entry_of(Index node);
    Entry& child_of(const Entry& from, Index token);
    void rank(Entry& entry) const;
    void prune();
    void keep();
    Index find(Index parent, Index token) const;
    bool is_better(const Entry& one, const Entry& other) const;
    std::vector<std::int64_t> ids_of(const Entry& entry) const;
    std::vector<CtcHypothesis> best_outputs();

    CtcBeamOptions options_;
    const NgramScorer* ngram_ = nullptr;
    std::vector<Node> nodes_;
    std::unordered_map<std::uint64_t, Index> children_;  // by node and token
    std::vector<Index> entry_at_;                        // by node: its entry among the grown ones, or NONE
    std::vector<Entry> beam_, grown_;
    std::vector<Token> tokens_;
};

}  // namespace fewstep
