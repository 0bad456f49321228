// Draft and verify (Xia et al. 2022): a drafter proposes the next tokens, the autoregressive network scores them all in one pass, and
// they are kept up to the first that it would not have written, which is replaced by its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/inference/network/block_decoder.h"
#include "csrc/inference/stepwise/search.h"

namespace fewstep {

// Reads the tokens so far with empty slots behind them, and fills those at once; or, with `features`, writes token after token.
struct Drafter {
    const Transformer& network;
    const PackedMatrix& vocabulary;  // its own, or the verifier's where that is the same
    bool shares_encoder;     // reads what the verifier's encoder says
    Sight sight;             // ALL or PREFIX
    bool codes_in_layers;    // codes are added again before every layer but the first
    bool last_token;         // empty slots also carry the last token of the prefix
    std::int64_t mask;       // the word that empty slots carry; -1: a soft copy of the source
    std::vector<float> copy_queries;  // [slots,D] of the soft copy
    PackedMatrix features;   // [D,D] slot t carries the token of slot t - 1 and this of the state that wrote it; empty: a block decoder
    PackedMatrix common_rows;     // rows of the vocabulary: of the words that are common by the network's lexicon, eos being the first
    // The same in 8 bits: a draft need only be likely.
    std::vector<QuantizedLayer> int8_layers;
    Int8Matrix int8_features;

    bool autoregressive() const { return features.outputs() > 0; }
};

enum class Proposals { NETWORK, LOOKUP, NOTHING };

struct DraftRules {
    Proposals proposals = Proposals::NETWORK;
    std::int64_t width = 5;           // tokens of a block at most (k)
    bool adaptive = false;            // the next block is two wider after one kept whole, one narrower otherwise; 1 to k
    ShortlistOptions draft_shortlist;                   // what the drafter chooses among
    float confidence = 0.0F;          // an autoregressive drafter ends a block whose probability has fallen below this
    bool int8 = false;               // the drafter multiplies in 8 bits
    std::int64_t ngram = 3;           // longest n-gram that is looked up
    std::size_t top_k = 1;            // beta: a drafted token is kept if its log-probability is at least that of the beta-th best
    float max_logprob_gap = 0.0F;                 // tau: and at most this far below the best
    bool require_top1_eos = true;           // a drafted eos is kept only if it is the best
    double min_tokens_per_pass = 0.0;          // tokens that a block must yield on average, after `TRIALS`, for drafting to go on
    std::int64_t bos = 1;
    ShortlistOptions verifier_shortlist = {};          // what the verifier chooses among
};

inline constexpr std::int64_t MIN_TRIAL_BLOCKS = 3;

struct AggressiveOutcome {
    std::vector<std::int64_t> tokens;  // without eos
    double score, margin;
    std::int64_t steps;                // passes of the verifier
    std::int64_t num_drafted, num_accepted;    // tokens
    bool fell_back;                    // drafting did not pay: the rest was written token by token
    std::vector<std::int64_t> proposed_by_slot, accepted_by_slot;  // by slot of a block: drafts that all before were kept of, and those of them kept
};

// Seconds, summed over threads.
struct AggressiveTimes {
    double encoder = 0.0, drafter_encoder = 0.0, drafter = 0.0, verifier = 0.0, rest = 0.0;
};

struct Aggressive {
    std::vector<AggressiveOutcome> outcomes;
    AggressiveTimes times;
};

// `hints` [B]: text of each sentence that LOOKUP looks up in besides what is written. With `ranks` 1 the tokens are those of `greedy` for
// any drafter: the verifier's states are sums of the same numbers in the same order. `options`: length penalty. The verifier's lists are
// made by its own lexicon.
Aggressive aggressive(const Transformer& verifier, const Drafter* drafter, const Sources& sources, const std::vector<std::int64_t>& limits,
                      const std::vector<std::vector<std::int64_t>>& references, const BeamOptions& options, const TokenRules& token_rules,
                      const DraftRules& rules, int threads);

// The drafter alone: block after block until one holds eos.
Aggressive draft_only(const Transformer& verifier, const Drafter& drafter, const Sources& sources, const std::vector<std::int64_t>& limits,
                      const BeamOptions& options, const TokenRules& token_rules, const DraftRules& rules, int threads);

}  // namespace fewstep
