// Who proposes the next tokens: a block decoder, or the text that follows the last n-gram elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/aggressive_decoding.h"

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
    // `states`: of the encoder that the drafter reads.
    NetworkDrafts(const Drafter& drafter, const Sources& sources, const float* states, const std::vector<std::int64_t>& limits, Team& team);

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

// What follows, in `hint` or else in what is written, the longest n-gram (of up to `longest` tokens) that the written text ends with: at
// most `width` tokens. Both texts begin with `bos`. Of several places in the hint that nearest to where the written text has come to,
// of several in the written text the last.
void look_up(const std::vector<std::int64_t>& hint, const std::vector<std::int64_t>& written, std::int64_t bos, std::int64_t longest,
             std::int64_t width, std::vector<std::int64_t>& draft);

}  // namespace fewstep
