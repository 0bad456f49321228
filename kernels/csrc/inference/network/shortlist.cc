#include "csrc/inference/network/shortlist.h"

#include <algorithm>
#include <utility>

namespace fewstep {

std::vector<std::int64_t> Lexicon::listed(std::span<const std::int64_t> source, const ShortlistRules& rules, std::size_t target_words) const {
    const std::size_t common = std::min(rules.words, common_words.size()), linked = std::min(rules.links, links);
    std::vector<std::int64_t> words(common_words.begin(), common_words.begin() + static_cast<std::ptrdiff_t>(common));
    std::vector<char> known(target_words);
    for (const std::int64_t word : words) known[static_cast<std::size_t>(word)] = 1;
    for (const std::int64_t read : source)
        for (std::size_t link = 0; link < linked; ++link) {
            const std::int64_t word = linked_words[static_cast<std::size_t>(read) * links + link];
            if (word < 0) break;
            if (!std::exchange(known[static_cast<std::size_t>(word)], 1)) words.push_back(word);
        }
    return words;
}

Shortlist::Shortlist(const Transformer& network, std::vector<std::int64_t> words, std::size_t common, bool bytes) : words_(std::move(words)) {
    const Lexicon& lexicon = network.lexicon;
    if (bytes) narrow_ = NarrowMatrix(ByteMatrix(lexicon.bytes, words_, lexicon.common_bytes, std::min(common, lexicon.common_words.size())));
    else floats_ = rows_of(network, words_);
}

Vocabulary Shortlist::vocabulary(const Transformer& network) const {
    return {floats_.outputs() > 0 ? floats_ : network.vocabulary, narrow_, words_};
}

std::int64_t Shortlist::place(std::int64_t word) const {
    const auto found = std::find(words_.begin(), words_.end(), word);
    return found == words_.end() ? -1 : found - words_.begin();
}

WordRules Shortlist::places(const WordRules& rules) const {
    WordRules found{{}, place(rules.eos), rules.min_tokens};
    for (const std::int64_t word : rules.banned)
        if (const std::int64_t at = place(word); at >= 0) found.banned.push_back(at);
    return found;
}

Shortlist shortlist(const Transformer& network, std::span<const std::int64_t> source, const ShortlistRules& rules, bool bytes) {
    return {network, network.lexicon.listed(source, rules, network.shape.target_words), rules.words, bytes};
}

PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> words) {
    std::vector<const float*> rows;
    for (const std::int64_t word : words) rows.push_back(network.target_words.data() + static_cast<std::size_t>(word) * network.shape.width);
    PackedMatrix packed;
    if (!rows.empty()) packed.pack(rows, nullptr, network.shape.width);
    return packed;
}

}  // namespace fewstep
