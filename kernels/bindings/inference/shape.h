// Shapes and weights of networks, which Python passes by name.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "bindings/arrays.h"
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

}  // namespace fewstep
