#include "csrc/inference/network/sequence_pass.h"

#include <algorithm>
#include <utility>

namespace fewstep {

namespace {

// Of a part: with fewer, weights are read for too little. More where a layer's come from beyond the nearer caches, floats each.
constexpr std::size_t LEAST_ROWS = 6, LEAST_ROWS_FAR = 24, FAR = 1 << 20;

std::size_t least_rows(const TransformerShape& shape) {
    return shape.width * (4 * shape.width + 2 * shape.inner) < FAR ? LEAST_ROWS : LEAST_ROWS_FAR;
}

}  // namespace

SequencePass::SequencePass(const Transformer& model, std::vector<std::size_t> lengths, Team& team)
    : model_(model), team_(team), starts_(1), wide_width_(std::max(3 * model.shape.width, model.shape.inner)) {
    for (int thread = 0; thread < team.threads(); ++thread) spaces_.push_back({Attention(model.heads), {}});
    const std::size_t width = model.shape.width;
    std::size_t turned = 0;
    std::vector<std::size_t> places;
    for (const std::size_t length : lengths) {
        starts_.push_back(starts_.back() + length);
        places.push_back(turned);
        turned += (room_for(length) + length) * width;
    }
    x_.reserve(rows() * width), normed_.reserve(rows() * width), mixed_.reserve(rows() * width);
    wide_.reserve(rows() * wide_width_);
    turned_.reserve(turned);
    for (const std::size_t place : places) keys_.push_back(turned_.data() + place);
}

// Parts are the same each time: what a thread left in its part of `wide_` is read by who has it next.
template <typename Body>
void SequencePass::in_parts(const Body& body) {
    const std::size_t width = model_.shape.width, parts = std::clamp<std::size_t>(rows() / least_rows(model_.shape), 1, spaces_.size());
    Team& helpers = parts == 1 ? team_ : Team::alone();
    team_.run(parts, [&](std::size_t part, int thread) {
        const std::size_t first = rows() * part / parts, last = rows() * (part + 1) / parts;
        Space& space = spaces_[static_cast<std::size_t>(thread)];
        body(Part{first, last, x_.data() + first * width, normed_.data() + first * width, mixed_.data() + first * width,
                  wide_.data() + first * wide_width_, space.attention, space.scratch, helpers});
    });
}

// Calls body(sequence, first, last, row) for the places [first,last) of each sequence that lie in the part from its row on.
template <typename Body>
void SequencePass::each_sequence(const Part& part, const Body& body) const {
    for (std::size_t sequence = 0; sequence + 1 < starts_.size(); ++sequence) {
        const std::size_t first = std::max(part.first, starts_[sequence]), last = std::min(part.last, starts_[sequence + 1]);
        if (first < last) body(sequence, first - starts_[sequence], last - starts_[sequence], first - part.first);
    }
}

// Queries, keys and values; what other parts read of them is laid out for them.
template <typename Layer>
void SequencePass::project(const Layer& layer, const NarrowLayer& narrow, const Part& part) {
    const std::size_t width = model_.shape.width;
    const bool pre_norm = model_.shape.pre_norm;
    if (pre_norm) layer.norm.apply(part.x, part.rows(), part.normed);
    product(layer.projection, narrow.projection, pre_norm ? part.normed : part.x, part.rows(), part.wide, Then::STORE, part.scratch, part.team);
    each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
        const std::size_t length = starts_[sequence + 1] - starts_[sequence];
        lay_out(part.wide + row * 3 * width + width, 3 * width, first, last, length, width, keys_[sequence],
                keys_[sequence] + room_for(length) * width);
    });
}

// x += attention of each sequence over itself
template <typename Layer>
void SequencePass::attend_to_own(const Layer& layer, const NarrowLayer& narrow, const Part& part) const {
    const std::size_t width = model_.shape.width;
    each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
        const std::size_t length = starts_[sequence + 1] - starts_[sequence], room = room_for(length);
        part.attention.attend(part.wide + row * 3 * width, 3 * width, last - first,
                              {length, room, keys_[sequence], keys_[sequence] + room * width}, part.mixed + row * width);
    });
    product(layer.output, narrow.output, part.mixed, part.rows(), part.x, Then::ADD, part.scratch, part.team);
    if (!model_.shape.pre_norm) layer.norm.apply(part.x, part.rows(), part.x);
}

// x += attention of each sequence over its source
void SequencePass::attend_to_sources(const DecoderLayer& layer, const NarrowLayer& narrow, const std::vector<Sequence>& sources,
                                     const Part& part) const {
    const std::size_t width = model_.shape.width;
    residual(layer.cross_norm, model_.shape.pre_norm, part.x, part.rows(), part.normed, [&](const float* input) {
        product(layer.cross_queries, narrow.cross_queries, input, part.rows(), part.wide, Then::STORE, part.scratch, part.team);
        each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
            part.attention.attend(part.wide + row * width, width, last - first, sources[sequence], part.mixed + row * width);
        });
        product(layer.cross_output, narrow.cross_output, part.mixed, part.rows(), part.x, Then::ADD, part.scratch, part.team);
    });
}

void SequencePass::feed_forward(const FeedForward& block, const NarrowLayer& narrow, const Part& part) const {
    residual(block.norm, model_.shape.pre_norm, part.x, part.rows(), part.normed, [&](const float* input) {
        product(block.widen, narrow.widen, input, part.rows(), part.wide, block.activation, part.scratch, part.team);
        product(block.narrow, narrow.narrow, part.wide, part.rows(), part.x, Then::ADD, part.scratch, part.team);
    });
}

void SequencePass::encode(const EncoderLayer& layer, const NarrowLayer& narrow) {
    in_parts([&](const Part& part) { project(layer, narrow, part); });
    in_parts([&](const Part& part) {
        attend_to_own(layer, narrow, part);
        feed_forward(layer.feed_forward, narrow, part);
    });
}

void SequencePass::decode(const DecoderLayer& layer, const NarrowLayer& narrow, const std::vector<Sequence>& sources) {
    in_parts([&](const Part& part) { project(layer, narrow, part); });
    in_parts([&](const Part& part) {
        attend_to_own(layer, narrow, part);
        attend_to_sources(layer, narrow, sources, part);
        feed_forward(layer.feed_forward, narrow, part);
    });
}

}  // namespace fewstep
