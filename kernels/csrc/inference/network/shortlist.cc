#include "csrc/inference/network/shortlist.h"

#include <algorithm>
#include <utility>

namespace fewstep {

std::vector<std::int64_t> Lexicon::shortlist_tokens(std::span<const std::int64_t> source, const ShortlistOptions& rules,
                                                    std::size_t vocabulary_size) const {
    const std::size_t common = std::min(rules.tokens, common_tokens.size()), linked = std::min(rules.links, links);
    std::vector<std::int64_t> tokens(common_tokens.begin(), common_tokens.begin() + static_cast<std::ptrdiff_t>(common));
    std::vector<char> included(vocabulary_size);
    for (const std::int64_t token : tokens) included[static_cast<std::size_t>(token)] = 1;
    for (const std::int64_t source_token : source)
        for (std::size_t link = 0; link < linked; ++link) {
            const std::int64_t token = linked_tokens[static_cast<std::size_t>(source_token) * links + link];
            if (token < 0) break;
            if (!std::exchange(included[static_cast<std::size_t>(token)], 1)) tokens.push_back(token);
        }
    return tokens;
}

Shortlist::Shortlist(const Transformer& network, std::vector<std::int64_t> tokens, std::size_t common, bool int8)
    : tokens_(std::move(tokens)) {
    const Lexicon& lexicon = network.lexicon;
    if (int8)
        quantized_ =
            QuantizedMatrix(Int8Matrix(lexicon.int8, tokens_, lexicon.common_int8, std::min(common, lexicon.common_tokens.size())));
    else
        floats_ = rows_of(network, tokens_);
}

Vocabulary Shortlist::vocabulary(const Transformer& network) const {
    return {floats_.outputs() > 0 ? floats_ : network.vocabulary, quantized_, tokens_};
}

std::int64_t Shortlist::index_of(std::int64_t token) const {
    const auto found = std::find(tokens_.begin(), tokens_.end(), token);
    return found == tokens_.end() ? -1 : found - tokens_.begin();
}

TokenRules Shortlist::localize(const TokenRules& rules) const {
    TokenRules found{{}, index_of(rules.eos), rules.min_tokens};
    for (const std::int64_t token : rules.banned)
        if (const std::int64_t index = index_of(token); index >= 0) found.banned.push_back(index);
    return found;
}

Shortlist shortlist(const Transformer& network, std::span<const std::int64_t> source, const ShortlistOptions& rules, bool int8) {
    return {network, network.lexicon.shortlist_tokens(source, rules, network.shape.target_vocabulary), rules.tokens, int8};
}

PackedMatrix rows_of(const Transformer& network, std::span<const std::int64_t> tokens) {
    std::vector<const float*> rows;
    std::vector<float> bias;
    for (const std::int64_t token : tokens) {
        rows.push_back(network.target_embedding.data() + static_cast<std::size_t>(token) * network.shape.width);
        if (!network.logits_bias.empty()) bias.push_back(network.logits_bias[static_cast<std::size_t>(token)]);
    }
    PackedMatrix packed;
    if (!rows.empty()) packed.pack(rows, bias.empty() ? nullptr : bias.data(), network.shape.width);
    return packed;
}

}  // namespace fewstep
