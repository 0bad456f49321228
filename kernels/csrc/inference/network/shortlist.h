// The lexical shortlist of one sentence: the target tokens that its source makes likely.
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
    // A shortlist of `tokens`, as the network's lexicon returns them, of which the first `common` are common tokens; ranked in int8
    // or in float32.
    Shortlist(const Transformer& network, std::vector<std::int64_t> tokens, std::size_t common, bool int8);

    const std::vector<std::int64_t>& tokens() const { return tokens_; }
    // The rows of the vocabulary, in float32 or in int8.
    const PackedMatrix& floats() const { return floats_; }
    const Int8Matrix& int8() const { return quantized_.int8(); }

    // The output projection over the shortlist, with the network's token ids. Valid as long as the shortlist and the network.
    Vocabulary vocabulary(const Transformer& network) const;
    // Return the index of a token in the shortlist, or -1.
    std::int64_t index_of(std::int64_t token) const;
    // Return rules in terms of indices in the shortlist, which contains eos.
    TokenRules localize(const TokenRules& rules) const;

  private:
    std::vector<std::int64_t> tokens_;
    PackedMatrix floats_;
    QuantizedMatrix quantized_;
};

// Build the shortlist of a source.
Shortlist shortlist(const Transformer& network, std::span<const std::int64_t> source, const ShortlistOptions& rules, bool int8);

// Pack rows of a network's target embedding, with their biases in its output projection.
PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> tokens);

}  // namespace fewstep
