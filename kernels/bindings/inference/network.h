// Shapes and weights of networks, which Python passes by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "csrc/inference/gemm/quantized_matrix.h"
#include "csrc/inference/network/transformer.h"

namespace fewstep {

using Sizes = std::map<std::string, std::size_t>;
using NamedArrays = std::map<std::string, nanobind::ndarray<const float, nanobind::c_contig, nanobind::device::cpu>>;

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

// The names of precisions in Python.

inline Precision precision_of(const std::string& name) {
    if (name == "float32") return Precision::FLOAT32;
    if (name == "bfloat16") return Precision::BFLOAT16;
    if (name == "int8") return Precision::INT8;
    throw std::invalid_argument("precision: expected float32, bfloat16 or int8, got " + name);
}

// Lexicons from numpy arrays.

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
