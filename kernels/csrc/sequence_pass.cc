#include "csrc/sequence_pass.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fewstep {

SequencePass::SequencePass(const Transformer& model, std::vector<std::size_t> lengths)
    : model_(model), lengths_(std::move(lengths)), rows_(std::accumulate(lengths_.begin(), lengths_.end(), std::size_t{0})),
      attention_(model.heads) {
    const std::size_t width = model.shape.width;
    std::size_t largest = 0;
    for (const std::size_t length : lengths_) largest = std::max(largest, (room_for(length) + length) * width);
    x_.reserve(rows_ * width), normed_.reserve(rows_ * width), mixed_.reserve(rows_ * width);
    wide_.reserve(rows_ * std::max(3 * width, model.shape.inner));
    turned_.reserve(largest);
}

void SequencePass::mix_own() {
    const std::size_t width = model_.shape.width;
    std::size_t row = 0;
    for (const std::size_t length : lengths_) {
        const float* first = wide_.data() + row * 3 * width;
        const std::size_t room = room_for(length);
        float* values = turned_.data() + room * width;
        lay_out(first + width, 3 * width, length, width, turned_.data(), values);
        attention_.attend(first, 3 * width, length, {length, room, turned_.data(), values}, mixed_.data() + row * width);
        row += length;
    }
}

void SequencePass::attend_to_sources(const DecoderLayer& layer, const std::vector<Sequence>& sources, const HalfLayer& half) {
    const std::size_t width = model_.shape.width;
    residual(layer.cross_norm, model_.shape.pre_norm, x_.data(), rows_, normed_.data(), [&](const float* input) {
        product(layer.cross_queries, half.cross_queries, input, rows_, wide_.data(), Then::STORE, halves_);
        std::size_t row = 0;
        for (std::size_t sequence = 0; sequence < lengths_.size(); row += lengths_[sequence++])
            attention_.attend(wide_.data() + row * width, width, lengths_[sequence], sources[sequence], mixed_.data() + row * width);
        product(layer.cross_output, half.cross_output, mixed_.data(), rows_, x_.data(), Then::ADD, halves_);
    });
}

void SequencePass::feed_forward(const FeedForward& block, const HalfLayer& half) {
    residual(block.norm, model_.shape.pre_norm, x_.data(), rows_, normed_.data(), [&](const float* input) {
        product(block.widen, half.widen, input, rows_, wide_.data(), block.activation, halves_);
        product(block.narrow, half.narrow, wide_.data(), rows_, x_.data(), Then::ADD, halves_);
    });
}

}  // namespace fewstep
