// Whole sequences on their way through the layers of a Transformer, each of whose places sees all places of its own sequence.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/transformer.h"

namespace fewstep {

class SequencePass {
 public:
    SequencePass(const Transformer& model, std::vector<std::size_t> lengths);

    // x += attention of each sequence over itself
    template <typename Layer>
    void attend_to_own(const Layer& layer) {
        const std::size_t width = model_.shape.width;
        residual(layer.norm, model_.shape.pre_norm, x_.data(), rows_, normed_.data(), [&](const float* input) {
            layer.projection.multiply(input, width, rows_, wide_.data(), 3 * width);
            mix_own();
            layer.output.multiply(mixed_.data(), width, rows_, x_.data(), width, Then::ADD);
        });
    }
    // x += attention of each sequence over its source
    void attend_to_sources(const DecoderLayer& layer, const std::vector<Sequence>& sources);
    void feed_forward(const FeedForward& block);

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
};

}  // namespace fewstep
