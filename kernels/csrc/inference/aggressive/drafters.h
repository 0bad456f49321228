// Drafters: a block decoder, an autoregressive decoder, and n-gram look-up (prompt look-up) in text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/aggressive/decoding.h"

namespace fewstep {

// A sentence to draft for, and the number of tokens.
struct DraftRequest {
    std::size_t sentence;
    const std::vector<std::int64_t>* prefix;
    std::int64_t width;
};

// A block drafter for a part of the batch. The keys and values of a prefix stay cached if later tokens cannot change them.
class BlockDrafter {
  public:
    // `cross_cache`: keys and values of the encoder states. `int8`: multiply in int8.
    BlockDrafter(const Drafter& drafter, const Sources& sources, CrossCache cross_cache, const std::vector<std::int64_t>& limits,
                 bool int8, ThreadTeam& team);

    // Return the states [sum of widths,D] of the empty slots; `slots()` are their positions.
    const float* states(std::span<const DraftRequest> requests);
    std::span<const std::int64_t> slots() const { return slots_; }

  private:
    void embed_source_copy(const DraftRequest& request, std::size_t slot, float* x);

    const Drafter& drafter_;
    BlockDecoder decoder_;
    bool prefix_cached_;
    std::vector<std::int64_t> cached_slots_;    // by sentence: slots of its prefix with cached keys and values
    std::vector<KeyValues> source_embeddings_;  // by sentence: keys and values of the soft copy
    Buffer floats_;
    Attention source_copy_;
    std::vector<Block> blocks_;
    std::vector<std::int64_t> slots_;
};

// The slot after the prefix and the drafted tokens of a sentence.
struct DraftPosition {
    std::size_t sentence;
    const std::vector<std::int64_t>*prefix, *drafted;

    std::size_t slot() const { return prefix->size() + drafted->size(); }
};

// An autoregressive drafter for a part of the batch. The input of slot t is the token of slot t - 1 and the state that generated
// it: the verifier's state if it is known, else the drafter's.
class AutoregressiveDrafter {
  public:
    // As BlockDrafter.
    AutoregressiveDrafter(const Drafter& drafter, CrossCache cross_cache, const std::vector<std::int64_t>& limits, bool int8,
                          ThreadTeam& team);

    // Replace the features of the slots [first,first + count) of a sentence by the verifier's states [count,D].
    void observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden);
    // Return the states [N,D] of the next slots of N sentences.
    const float* states(std::span<const DraftPosition> positions);

  private:
    float* feature(std::size_t sentence, std::size_t slot) { return features_.data() + (starts_[sentence] + slot) * width_; }

    const Drafter& drafter_;
    bool int8_;
    ThreadTeam& team_;
    BlockDecoder decoder_;
    Int8Matrix::Scratch values_;
    std::size_t width_, slots_ = 0;
    std::vector<std::size_t> starts_;        // by sentence: offset of its first slot
    std::vector<std::size_t> cached_slots_;  // by sentence: slots with cached keys and values
    Buffer features_, input_features_;       // [slots,D] the state that generated the token of each slot; scratch
    std::vector<Block> blocks_;
};

// Heads for a part of the batch. They read the verifier's state that generated the last token of a sentence.
class HeadDrafter {
  public:
    HeadDrafter(const Drafter& drafter, std::size_t sentences, ThreadTeam& team);

    // Set the verifier's state [D] that generated the last token of a sentence.
    void observe(std::size_t sentence, const float* hidden);
    // Return the states [sum of widths,D] of the slots after the prefixes, which are not empty; `slots()` are their positions.
    const float* states(std::span<const DraftRequest> requests);
    std::span<const std::int64_t> slots() const { return slots_; }

  private:
    const Drafter& drafter_;
    ThreadTeam& team_;
    std::size_t width_;
    Buffer last_states_, inputs_, residuals_, hidden_;
    std::vector<std::int64_t> slots_;
};

// Draft up to `width` tokens that follow the longest suffix n-gram (up to order `longest`) of the prefix elsewhere: in `hint`, at
// the match nearest to the current position, else in the prefix, at its last earlier match. Both texts begin with `bos`.
void lookup_draft(const std::vector<std::int64_t>& hint, const std::vector<std::int64_t>& prefix, std::int64_t bos,
                  std::int64_t longest, std::int64_t width, std::vector<std::int64_t>& draft);

}  // namespace fewstep
