// Shapes and weights of networks, which Python passes by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/numbers.h"
#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

using Ids = Vector<std::int64_t>;
using Table = Given<const std::int64_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Sizes = std::map<std::string, std::size_t>;
using NamedArrays = std::map<std::string, Given<const float, nanobind::c_contig, nanobind::device::cpu>>;

// The activation of feed-forward blocks with this index in `ACTIVATIONS` of fewstep/networks/arrays.py.
inline Epilogue activation_of(std::size_t index) {
    constexpr Epilogue ACTIVATIONS[] = {Epilogue::RELU, Epilogue::GELU, Epilogue::SWISH};
    require(index < std::size(ACTIVATIONS), "activation: expected a number below " + std::to_string(std::size(ACTIVATIONS)));
    return ACTIVATIONS[index];
}

// The shape with the names of `native_arguments` in fewstep/networks/arrays.py.
inline TransformerShape shape_of(const Sizes& sizes) {
    const auto at = [&](const char* name) {
        const auto found = sizes.find(name);
        require(found != sizes.end(), std::string("shape: missing ") + name);
        return found->second;
    };
    return {at("encoder_layers"),
            at("decoder_layers"),
            at("width"),
            at("feed_forward"),
            at("heads"),
            at("pre_norm") != 0,
            at("source_vocabulary"),
            at("target_vocabulary"),
            at("source_positions"),
            at("slots"),
            activation_of(at("activation")),
            at("scale_embeddings") != 0};
}

// The weights, which must outlive the result.
inline Arrays weights_of(const NamedArrays& arrays) {
    Arrays weights;
    for (const auto& [name, array] : arrays) {
        std::vector<std::size_t> sizes;
        for (std::size_t axis = 0; axis < array.ndim(); ++axis) sizes.push_back(array.shape(axis));
        weights.add(name, array.data(), std::move(sizes));
    }
    return weights;
}

inline void require_ids(const std::string& name, std::span<const std::int64_t> ids, std::size_t vocabulary_size) {
    const auto size = static_cast<std::int64_t>(vocabulary_size);
    for (const std::int64_t id : ids)
        if (id < 0 || id >= size)  // only then a message: there are many ids
            throw std::invalid_argument(name + ": expected ids below " + std::to_string(vocabulary_size) + got(id));
}

// The rows of a padded table, which must outlive the result. Throws std::invalid_argument for a length that is not among 1 to
// `positions`, and for an id outside the vocabulary before the end of its row.
inline Sources sources_of(const Table& ids, const Ids& lengths, std::size_t positions, std::size_t vocabulary_size) {
    require(lengths.size() == ids.shape(0), "lengths: expected one for each row of sources");
    Sources sources{ids.data(), ids.shape(1), {view(lengths).begin(), view(lengths).end()}, std::vector<std::size_t>(ids.shape(0))};
    std::iota(sources.rows.begin(), sources.rows.end(), std::size_t{0});
    const auto max_length = static_cast<std::int64_t>(std::min(ids.shape(1), positions));
    for (std::size_t row = 0; row < sources.rows.size(); ++row) {
        const std::int64_t length = sources.lengths[row];
        require(length >= 1 && length <= max_length,
                "lengths" + expected_at(row) + "1 to " + std::to_string(max_length) + got(length));
        require_ids("sources[" + std::to_string(row) + "]", sources.sentence(row), vocabulary_size);
    }
    return sources;
}

// The names of precisions in Python.

inline Precision precision_of(const std::string& name) {
    if (name == "float32") return Precision::FLOAT32;
    if (name == "bfloat16") return Precision::BFLOAT16;
    if (name == "int8") return Precision::INT8;
    throw std::invalid_argument("precision: expected float32, bfloat16 or int8, got " + name);
}

// Lexicons from numpy arrays.

// Throws std::invalid_argument for ids outside the vocabularies of the shape.
inline Lexicon lexicon_of(const Ids& common_tokens, const Table& linked_tokens, const TransformerShape& shape) {
    const auto num_tokens = static_cast<std::int64_t>(shape.target_vocabulary);
    require_ids("common_tokens", view(common_tokens), shape.target_vocabulary);
    require(linked_tokens.size() == 0 || linked_tokens.shape(0) == shape.source_vocabulary,
            "linked_tokens: expected a row for each source token");
    const std::size_t links = linked_tokens.size() == 0 ? 0 : linked_tokens.shape(1);
    const std::int64_t* linked = linked_tokens.data();
    for (std::size_t index = 0; index < linked_tokens.size(); ++index)
        require(linked[index] < num_tokens,  // negative: no link
                "linked_tokens: expected ids below " + std::to_string(num_tokens) + got(linked[index]));
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
