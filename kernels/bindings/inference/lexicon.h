// Lexicons from numpy arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

using LinkedTokens = nanobind::ndarray<const std::int64_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// Throws std::invalid_argument for ids outside the vocabularies of the shape.
inline Lexicon lexicon_of(const Vector<std::int64_t>& common_tokens, const LinkedTokens& linked_tokens,
                          const TransformerShape& shape) {
    const auto num_tokens = static_cast<std::int64_t>(shape.target_vocabulary);
    const std::string among = ": expected ids below " + std::to_string(num_tokens) + ", got ";
    for (const std::int64_t token : view(common_tokens))
        require(token >= 0 && token < num_tokens, "common_tokens" + among + std::to_string(token));
    require(linked_tokens.size() == 0 || linked_tokens.shape(0) == shape.source_vocabulary,
            "linked_tokens: expected a row for each source token");
    const std::size_t links = linked_tokens.size() == 0 ? 0 : linked_tokens.shape(1);
    const std::int64_t* linked = linked_tokens.data();
    for (std::size_t index = 0; index < linked_tokens.size(); ++index)
        require(linked[index] < num_tokens, "linked_tokens" + among + std::to_string(linked[index]));
    return {{view(common_tokens).begin(), view(common_tokens).end()}, {linked, linked + linked_tokens.size()}, links, {}, {}};
}

// Throws std::invalid_argument for a shortlist that is larger than the lexicon or lacks eos.
inline void require_shortlist(const Lexicon& lexicon, const ShortlistOptions& rules, std::int64_t eos) {
    if (rules.tokens == 0) return;
    const std::vector<std::int64_t>& common = lexicon.common_tokens;
    require(!common.empty() && rules.links <= lexicon.links,
            "shortlist: expected a network with a lexicon of at least " + std::to_string(rules.links) + " links per token, got " +
                (common.empty() ? "none" : std::to_string(lexicon.links) + " links"));
    const auto end = common.begin() + static_cast<std::ptrdiff_t>(std::min(rules.tokens, common.size()));
    require(std::find(common.begin(), end, eos) != end,
            "shortlist: expected eos among the first " + std::to_string(rules.tokens) + " common tokens");
}

}  // namespace fewstep
