// Lexicons from arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

using LinkedWords = nanobind::ndarray<const std::int64_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// Words of a network of these sizes; throws std::invalid_argument for others.
inline Lexicon lexicon_of(const Vector<std::int64_t>& common_words, const LinkedWords& linked_words, const TransformerShape& shape) {
    const auto words = static_cast<std::int64_t>(shape.target_words);
    const std::string among = ": expected words below " + std::to_string(words) + ", got ";
    for (const std::int64_t word : view(common_words)) require(word >= 0 && word < words, "common_words" + among + std::to_string(word));
    require(linked_words.size() == 0 || linked_words.shape(0) == shape.source_words, "linked_words: expected a row for each word of sources");
    const std::int64_t* linked = linked_words.data();
    for (std::size_t place = 0; place < linked_words.size(); ++place)
        require(linked[place] < words, "linked_words" + among + std::to_string(linked[place]));
    return {{view(common_words).begin(), view(common_words).end()}, {linked, linked + linked_words.size()}, linked_words.shape(1), {}, {}};
}

// Throws std::invalid_argument for a shortlist that a lexicon cannot make, or that eos is not on.
inline void require_shortlist(const Lexicon& lexicon, const ShortlistRules& rules, std::int64_t eos) {
    if (rules.words == 0) return;
    const std::vector<std::int64_t>& common = lexicon.common_words;
    require(!common.empty() && rules.links <= lexicon.links, "shortlist: expected a network with a lexicon of at least " + std::to_string(rules.links) +
            " links a word, got " + (common.empty() ? "none" : std::to_string(lexicon.links) + " links"));
    const auto end = common.begin() + static_cast<std::ptrdiff_t>(std::min(rules.words, common.size()));
    require(std::find(common.begin(), end, eos) != end, "shortlist: expected eos among the first " + std::to_string(rules.words) + " common words");
}

}  // namespace fewstep
