// Whole sequences on their way through the layers of a Transformer, each of whose places sees all places of its own sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/half_matrix.h"
#include "csrc/transformer.h"

namespace fewstep {

// The matrices of a decoder layer in bfloat16; empty ones are multiplied with in float.
struct HalfLayer {
    HalfLayer() = default;
    explicit HalfLayer(const DecoderLayer& layer)
        : projection(layer.projection), output(layer.output), cross_queries(layer.cross_queries), cross_output(layer.cross_output),
          widen(layer.feed_forward.widen), narrow(layer.feed_forward.narrow) {}

    HalfMatrix projection, output, cross_queries, cross_output, widen, narrow;
};

class SequencePass {
 public:
    SequencePass(const Transformer& model, std::vector<std::size_t> lengths);

    // x += attention of each sequence over itself
    template <typename Layer>
    void attend_to_own(const Layer& layer, const HalfLayer& half = {}) {
        residual(layer.norm, model_.shape.pre_norm, x_.data(), rows_, normed_.data(), [&](const float* input) {
            product(layer.projection, half.projection, input, rows_, wide_.data(), Then::STORE, halves_);
            mix_own();
            product(layer.output, half.output, mixed_.data(), rows_, x_.data(), Then::ADD, halves_);
        });
    }
    // x += attention of each sequence over its source
    void attend_to_sources(const DecoderLayer& layer, const std::vector<Sequence>& sources, const HalfLayer& half = {});
    void feed_forward(const FeedForward& block, const HalfLayer& half = {});

    float* x() { return x_.data(); }  // [rows,D], sequence after sequence
    Buffer states() && { return std::move(x_); }
    std::size_t rows() const { return rows_; }

 private:
    void mix_own();

    const Transformer& model_;
    std::vector<std::size_t> lengths_;
    std::size_t rows_;
    Buffer x_, normed_, mixed_, wide_, turned_;
    Attention attention_;
    std::vector<Half> halves_;
};

}  // namespace fewstep
