// Who proposes the next tokens: a block decoder, one that writes token after token, or the text that follows the last n-gram elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/aggressive/decoding.h"

namespace fewstep {

// Sentences to draft for, and how many tokens.
struct Order {
    std::size_t sentence;
    const std::vector<std::int64_t>* written;
    std::int64_t width;
};

// A block decoder at work on a share of sentences. Keys and values of a prefix are kept where nothing that comes later changes them.
class NetworkDrafts {
 public:
    // `memory`: what the drafter's decoder reads. `bytes`: multiply in 8 bits.
    NetworkDrafts(const Drafter& drafter, const Sources& sources, Memory memory, const std::vector<std::int64_t>& limits, bool bytes, Team& team);

    // States [sum of widths,D] of the empty slots; `slots()` are their numbers.
    const float* states(std::span<const Order> orders);
    std::span<const std::int64_t> slots() const { return places_; }

 private:
    void copy_source(const Order& order, std::size_t slot, float* x);

    const Drafter& drafter_;
    BlockDecoding decoding_;
    bool keeps_;
    std::vector<std::int64_t> done_;   // by sentence: slots of its prefix whose keys and values are there
    std::vector<Sequence> words_;      // by sentence: what the soft copy reads
    Buffer floats_;
    Attention copying_;
    std::vector<Block> blocks_;
    std::vector<std::int64_t> places_;
};

// The slot behind what is written and drafted of a sentence.
struct Next {
    std::size_t sentence;
    const std::vector<std::int64_t>*written, *drafted;

    std::size_t slot() const { return written->size() + drafted->size(); }
};

// A drafter that writes token after token on a share of sentences. Slot t carries the token of slot t - 1, and the state that it was
// written from: the verifier's where that is known, else its own.
class FeatureDrafts {
 public:
    // As above.
    FeatureDrafts(const Drafter& drafter, Memory memory, const std::vector<std::int64_t>& limits, bool bytes, Team& team);

    // The verifier's states [count,D] of the slots [first,first + count) of a sentence.
    void learn(std::size_t sentence, std::size_t first, std::size_t count, const float* states);
    // States [N,D] of the slots of N sentences.
    const float* states(std::span<const Next> ahead);

 private:
    float* feature(std::size_t sentence, std::size_t slot) { return features_.data() + (starts_[sentence] + slot) * width_; }

    const Drafter& drafter_;
    bool bytes_;
    Team& team_;
    BlockDecoding decoding_;
    std::vector<ByteMatrix::Value> values_;
    std::size_t width_, slots_ = 0;
    std::vector<std::size_t> starts_;  // by sentence: its first slot among those of all
    std::vector<std::size_t> done_;    // by sentence: slots whose keys and values are there
    Buffer features_, carried_;        // [slots,D] what each slot was written from; scratch
    std::vector<Block> blocks_;
};

// What follows, in `hint` or else in what is written, the longest n-gram (of up to `longest` tokens) that the written text ends with: at
// most `width` tokens. Both texts begin with `bos`. Of several places in the hint that nearest to where the written text has come to,
// of several in the written text the last.
void look_up(const std::vector<std::int64_t>& hint, const std::vector<std::int64_t>& written, std::int64_t bos, std::int64_t longest,
             std::int64_t width, std::vector<std::int64_t>& draft);

}  // namespace fewstep
