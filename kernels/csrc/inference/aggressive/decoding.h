// Draft and verify (Xia et al. 2022): a drafter proposes the next tokens, the autoregressive network scores all of them in one pass
// and accepts them up to the first that it would not have generated, which it replaces by its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/network/block_decoder.h"
#include "csrc/inference/stepwise/search.h"

namespace fewstep {

// A block drafter, which reads the prefix followed by empty slots and fills these in one pass; or, with `sight` CAUSAL, a drafter
// that writes token after token: a draft model (Leviathan et al. 2023), or with `features` a layer on the verifier's states (EAGLE,
// Li et al. 2024); or, with `heads`, heads on the verifier's states (Medusa, Cai et al. 2024).
struct Drafter {
    const Transformer& network;
    const PackedMatrix& vocabulary;   // its own, or the verifier's if they are shared
    bool shares_encoder;              // its decoder attends to the encoder states of the verifier
    Sight sight;                      // ALL or PREFIX of a block drafter, CAUSAL of one that writes token after token
    bool codes_in_layers;             // position codes are added again before every layer but the first
    bool last_token;                  // empty slots also carry the last token of the prefix
    std::int64_t mask;                // the token of empty slots; -1: a soft copy of the source
    std::vector<float> copy_queries;  // [slots,D] of the soft copy
    PackedMatrix features;     // [D,D] W: the input of slot t is the token of slot t - 1 plus W times the state that generated it;
                               // empty: the token alone
    PackedMatrix heads;        // [k D,D] W and b of k heads: head i predicts from h + SiLU(W_i h + b_i); empty: another drafter
    PackedMatrix common_rows;  // rows of the vocabulary of the lexicon's common tokens, eos first
    // The same in int8, because drafts need not be exact.
    std::vector<QuantizedLayer> int8_layers;
    Int8Matrix int8_features;

    bool autoregressive() const { return sight == Sight::CAUSAL; }
    bool has_features() const { return features.outputs() > 0; }
    bool has_heads() const { return heads.outputs() > 0; }
};

// JACOBI: the verifier's own tokens for the slots that its last pass rejected (Santilli et al. 2023), without a drafter.
enum class Proposals { NETWORK, LOOKUP, JACOBI, NOTHING };

struct DraftRules {
    Proposals proposals = Proposals::NETWORK;
    std::int64_t width = 5;  // maximum tokens of a block (k)
    bool adaptive = false;   // the next block is two tokens wider after an accepted block, else one narrower, within 1 to k
    std::size_t tree_nodes = 0, tree_branches = 4;  // tokens of a draft tree (0: chains), and candidates of each position
    ShortlistOptions draft_shortlist;               // candidates of the drafter
    float confidence = 0.0F;                        // an autoregressive drafter ends a block whose probability is below this
    bool int8 = false;                              // the drafter multiplies in int8
    std::int64_t ngram = 3;                         // maximum order of n-gram look-up
    std::size_t top_k = 1;         // beta: a drafted token is accepted if its log-probability is at least that of the beta-th best
    float max_logprob_gap = 0.0F;  // tau: and at most this far below the best
    bool require_top1_eos = true;  // a drafted eos is accepted only if it is the best token
    // Mean tokens per block, after MIN_TRIAL_BLOCKS blocks, below which drafting stops. The first block of a sentence does not
    // count.
    double min_tokens_per_pass = 0.0;
    std::int64_t bos = 1;
    ShortlistOptions verifier_shortlist = {};  // candidates of the verifier
};

inline constexpr std::int64_t MIN_TRIAL_BLOCKS = 3;

struct AggressiveOutcome {
    std::vector<std::int64_t> tokens;  // without eos
    double score, margin;
    std::int64_t steps;                      // passes of the verifier
    std::int64_t num_drafted, num_accepted;  // in tokens
    bool fell_back;                          // drafting stopped and the rest was decoded token by token
    std::vector<std::int64_t> proposed_by_slot,
        accepted_by_slot;  // by slot of a block: drafts after an accepted prefix, and accepted ones among them
};

// Seconds, summed over the threads.
struct AggressiveTimes {
    double encoder = 0.0, drafter_encoder = 0.0, drafter = 0.0, verifier = 0.0, rest = 0.0;
};

struct Aggressive {
    std::vector<AggressiveOutcome> outcomes;
    AggressiveTimes times;
};

// Decode a batch. `hints` [B]: text per sentence in which LOOKUP searches n-grams in addition to the prefix. With `top_k` 1 the
// tokens equal those of `greedy` for any drafter, because the verifier's states are the same sums in the same order. Of `options`
// the length penalty is read. The verifier's shortlists come from its own lexicon.
Aggressive aggressive(const Transformer& verifier, const Drafter* drafter, const Sources& sources,
                      const std::vector<std::int64_t>& limits, const std::vector<std::vector<std::int64_t>>& hints,
                      const BeamOptions& options, const TokenRules& token_rules, const DraftRules& rules, int threads);

// Decode with the drafter alone, block by block until eos.
Aggressive draft_only(const Transformer& verifier, const Drafter& drafter, const Sources& sources,
                      const std::vector<std::int64_t>& limits, const BeamOptions& options, const TokenRules& token_rules,
                      const DraftRules& rules, int threads);

}  // namespace fewstep
