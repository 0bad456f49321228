#include "csrc/aggressive/shortlist.h"

#include <algorithm>

namespace fewstep {

Shortlist::Shortlist(const Drafter& drafter, std::span<const std::int64_t> source, const DraftRules& rules) {
    const std::size_t common = std::min(rules.words, drafter.common_words.size()), links = std::min(rules.links, drafter.links);
    words_.assign(drafter.common_words.begin(), drafter.common_words.begin() + static_cast<std::ptrdiff_t>(common));
    std::vector<char> listed(drafter.network.shape.target_words);
    for (const std::int64_t word : words_) listed[static_cast<std::size_t>(word)] = 1;
    for (const std::int64_t read : source)
        for (std::size_t link = 0; link < links; ++link) {
            const std::int64_t word = drafter.linked_words[static_cast<std::size_t>(read) * drafter.links + link];
            if (word < 0) break;
            if (listed[static_cast<std::size_t>(word)]) continue;
            listed[static_cast<std::size_t>(word)] = 1;
            words_.push_back(word);
        }
    if (rules.bytes) bytes_ = ByteMatrix(drafter.vocabulary_bytes, words_, drafter.common_bytes, common);
    else floats_ = rows_of(drafter.network, words_);
}

PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> words) {
    std::vector<const float*> rows;
    for (const std::int64_t word : words) rows.push_back(network.target_words.data() + static_cast<std::size_t>(word) * network.shape.width);
    PackedMatrix packed;
    if (!rows.empty()) packed.pack(rows, nullptr, network.shape.width);
    return packed;
}

}  // namespace fewstep
