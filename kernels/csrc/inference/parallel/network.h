// Networks that write all slots of a target at once (Gu et al. 2018): one-shot decoders, Mask-Predict (Ghazvininejad et al. 2019)
// and the slots of CTC (Libovicky and Helcl 2018).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "csrc/inference/network/sequence_pass.h"
#include "csrc/inference/network/shortlist.h"
#include "csrc/inference/network/top_tokens.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The number of slots of a target, and the inputs of empty slots (`models/parallel/inputs.py` has the formulas).

enum class SlotInput { MASK, UNIFORM, SOFT, REPEAT, GAUSSIAN };

struct Slots {
    SlotInput input;
    std::int64_t mask;           // input token of hidden slots
    double temperature;          // of mixtures
    double upsampling;           // slots per source token; 0: the number is predicted
    std::int64_t length_offset;  // class of a target as long as its source; 0: classes are lengths
    std::int64_t min_slots;      // smallest number of slots
};

// The number of slots of a source of `tokens` tokens, if sources are upsampled.
std::size_t upsampled(const Slots& slots, std::size_t tokens);

// The distinct numbers of slots, at most `max_slots` each, for the logits of length classes: the `count` most probable ones, ties
// by class, or those around the most probable one, which comes first.
std::vector<std::size_t> predicted_lengths(const Slots& slots, const std::vector<float>& logits, std::size_t tokens,
                                           std::size_t max_slots, std::size_t count, bool around);

// The weights of source tokens in the input of a slot of a target of `size` slots; copies have a single weight of 1.
struct SourceWeight {
    std::size_t token;
    float weight;
};
void source_weights(const Slots& slots, std::size_t slot, std::size_t size, std::size_t tokens, std::vector<SourceWeight>& weights);

// The decoder reads one input per slot with position codes (`network.slot_codes`) and full self-attention.
struct ParallelNetwork {
    // The probability of `impossible` tokens is 0.
    ParallelNetwork(Transformer transformer, Precision precision, const Slots& slots, std::vector<float> lengths,
                    std::span<const std::int64_t> impossible);

    Transformer network;
    Slots slots;
    std::vector<float>
        lengths;  // [classes,D] logits of the target length from the mean source state; empty if sources are upsampled
};

struct ParallelRules {
    TokenRules token_rules;  // `eos` is the separator: EOS, or the blank of CTC
    ShortlistOptions shortlist = {};
};

// Return the logits of length classes from the encoder states of a sentence.
std::vector<float> length_logits(const ParallelNetwork& network, const float* states, std::size_t tokens);

// The targets of a group of sentences, each with a number of slots, and decoder passes over all of their slots. Rows are the slots
// of all targets, one target after the other. The sources and the rules must outlive it.
class TargetPass {
  public:
    // `sizes` returns the numbers of slots of each target of a sentence, from its encoder states and their number.
    TargetPass(const ParallelNetwork& network, const Sources& sources, const ParallelRules& rules, ThreadTeam& team,
               const std::function<std::vector<std::size_t>(const float* states, std::size_t tokens)>& sizes);

    std::size_t targets() const { return sizes_.size(); }
    std::size_t sentence(std::size_t target) const { return sentences_[target]; }
    std::size_t size(std::size_t target) const { return sizes_[target]; }
    std::size_t start(std::size_t target) const { return starts_[target]; }
    std::size_t rows() const { return starts_.back(); }

    // Compute the states of all slots. `tokens` [rows] are their inputs; -1: empty.
    void run(const std::vector<std::int64_t>& tokens);
    // Rank the tokens of some rows, ascending, and call use(position in rows, top tokens, row of these).
    using Use = std::function<void(std::size_t, const TopTokens&, std::size_t)>;
    void rank(const std::vector<std::size_t>& rows, std::size_t num_tokens, bool separate, const Use& use);

  private:
    void embed(const std::vector<std::int64_t>& tokens, float* x) const;
    void rank_part(std::span<const std::size_t> rows, std::size_t first, const Shortlist* own, std::size_t num_tokens,
                   bool separate, const Use& use);

    const ParallelNetwork& network_;
    const Sources& sources_;
    const ParallelRules& rules_;
    ThreadTeam& team_;
    CrossCache cross_cache_;
    std::vector<std::size_t> sentences_, sizes_, starts_;  // by target; `starts_`: first row, and the number of rows
    std::vector<std::vector<KeyValues>> memories_;         // [decoder layers][targets]
    std::vector<Shortlist> shortlists_;                    // by sentence; empty: all tokens
    std::optional<SequencePass> pass_;
    Buffer states_;
    TopTokens top_tokens_;
};

}  // namespace fewstep
