// The words that the drafts of one sentence are chosen among: the most common ones, and those that words of its source are linked to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/aggressive/decoding.h"

namespace fewstep {

class Shortlist {
 public:
    Shortlist() = default;
    Shortlist(const Drafter& drafter, std::span<const std::int64_t> source, const DraftRules& rules);

    // eos, and others
    const std::vector<std::int64_t>& words() const { return words_; }
    // Their rows of the vocabulary, in floats, or in 8 bits where `rules` says so.
    const PackedMatrix& floats() const { return floats_; }
    const ByteMatrix& bytes() const { return bytes_; }

 private:
    std::vector<std::int64_t> words_;
    PackedMatrix floats_;
    ByteMatrix bytes_;
};

// Rows of a network's target words, packed.
PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> words);

}  // namespace fewstep
