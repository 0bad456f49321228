// Who proposes the next tokens: a block decoder, one that writes token after token, or the text that follows the last n-gram elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/aggressive/decoding.h"

namespace fewstep {

// Sentences to draft for, and how many tokens.
struct DraftRequest {
    std::size_t sentence;
    const std::vector<std::int64_t>* prefix;
    std::int64_t width;
};

// A block decoder at work on a share of sentences. Keys and values of a prefix are kept where nothing that comes later changes them.
class BlockDrafter {
 public:
    // `memory`: what the drafter's decoder reads. `bytes`: multiply in 8 bits.
    BlockDrafter(const Drafter& drafter, const Sources& sources, CrossCache cross_cache, const std::vector<std::int64_t>& limits, bool int8, ThreadTeam& team);

    // States [sum of widths,D] of the empty slots; `slots()` are their numbers.
    const float* states(std::span<const DraftRequest> requests);
    std::span<const std::int64_t> slots() const { return slots_; }

 private:
    void embed_source_copy(const DraftRequest& request, std::size_t slot, float* x);

    const Drafter& drafter_;
    BlockDecoder decoder_;
    bool prefix_cached_;
    std::vector<std::int64_t> cached_slots_;   // by sentence: slots of its prefix whose keys and values are there
    std::vector<KeyValues> source_embeddings_;      // by sentence: what the soft copy reads
    Buffer floats_;
    Attention source_copy_;
    std::vector<Block> blocks_;
    std::vector<std::int64_t> slots_;
};

// The slot behind what is written and drafted of a sentence.
struct DraftPosition {
    std::size_t sentence;
    const std::vector<std::int64_t>*prefix, *drafted;

    std::size_t slot() const { return prefix->size() + drafted->size(); }
};

// A drafter that writes token after token on a share of sentences. Slot t carries the token of slot t - 1, and the state that it was
// written from: the verifier's where that is known, else its own.
class AutoregressiveDrafter {
 public:
    // As above.
    AutoregressiveDrafter(const Drafter& drafter, CrossCache cross_cache, const std::vector<std::int64_t>& limits, bool int8, ThreadTeam& team);

    // The verifier's states [count,D] of the slots [first,first + count) of a sentence.
    void observe(std::size_t sentence, std::size_t first, std::size_t count, const float* hidden);
    // States [N,D] of the slots of N sentences.
    const float* states(std::span<const DraftPosition> positions);

 private:
    float* feature(std::size_t sentence, std::size_t slot) { return features_.data() + (starts_[sentence] + slot) * width_; }

    const Drafter& drafter_;
    bool int8_;
    ThreadTeam& team_;
    BlockDecoder decoder_;
    std::vector<Int8Matrix::Value> values_;
    std::size_t width_, slots_ = 0;
    std::vector<std::size_t> starts_;  // by sentence: its first slot among those of all
    std::vector<std::size_t> cached_slots_;    // by sentence: slots whose keys and values are there
    Buffer features_, input_features_;        // [slots,D] what each slot was written from; scratch
    std::vector<Block> blocks_;
};

// What follows, in `hint` or else in what is written, the longest n-gram (of up to `longest` tokens) that the written text ends with: at
// most `width` tokens. Both texts begin with `bos`. Of several places in the hint that nearest to where the written text has come to,
// of several in the written text the last.
void lookup_draft(const std::vector<std::int64_t>& reference, const std::vector<std::int64_t>& prefix, std::int64_t bos, std::int64_t longest,
             std::int64_t width, std::vector<std::int64_t>& draft);

}  // namespace fewstep
