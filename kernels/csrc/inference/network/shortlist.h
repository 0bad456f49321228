// The words that one sentence is written in, of a vocabulary that holds more: those that its source makes likely.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/top_tokens.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

class Shortlist {
 public:
    Shortlist() = default;
    // `words` as the lexicon of a network lists them, of which so many at most are its `common` ones; in 8 bits, or in floats.
    Shortlist(const Transformer& network, std::vector<std::int64_t> tokens, std::size_t common, bool int8);

    const std::vector<std::int64_t>& tokens() const { return tokens_; }
    // Their rows of the vocabulary, in floats, or in 8 bits.
    const PackedMatrix& floats() const { return floats_; }
    const Int8Matrix& int8() const { return quantized_.int8(); }

    // What ranks them, by the network's words; lives as long as the list and the network.
    Vocabulary vocabulary(const Transformer& network) const;
    // The place of a word in the list; -1: it is not there.
    std::int64_t index_of(std::int64_t token) const;
    // Rules by places in the list, which holds eos.
    TokenRules localize(const TokenRules& rules) const;

 private:
    std::vector<std::int64_t> tokens_;
    PackedMatrix floats_;
    QuantizedMatrix quantized_;
};

// The list of a source.
Shortlist shortlist(const Transformer& network, std::span<const std::int64_t> source, const ShortlistOptions& rules, bool int8);

// Rows of a network's target words, packed.
PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> tokens);

}  // namespace fewstep
