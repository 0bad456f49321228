#include "csrc/inference/network/sequence_pass.h"

#include <algorithm>
#include <utility>

namespace fewstep {

namespace {

// With fewer rows per part, loading the weights dominates. Layers of more than LARGE_LAYER floats do not fit in the nearer caches
// and need more rows.
// With fewer rows per part, loading the weights dominates. Layers of more than LARGE_LAYER floats do not fit in the nearer caches
// and need more rows.
constexpr std::size_t MIN_ROWS_PER_PART = 6, MIN_ROWS_PER_PART_LARGE = 24, LARGE_LAYER = 1 << 20;
constexpr std::size_t MAX_ROWS_PER_PART = 64;  // with 2,048 hidden units they take half a megabyte

std::size_t min_rows_per_part(const TransformerShape& shape) {
    return shape.width * (4 * shape.width + 2 * shape.inner) < LARGE_LAYER ? MIN_ROWS_PER_PART : MIN_ROWS_PER_PART_LARGE;
}

}  // namespace

SequencePass::SequencePass(const Transformer& model, std::vector<std::size_t> lengths, ThreadTeam& team)
    : model_(model), team_(team), starts_(1) {
    const std::size_t width = model.shape.width, wide_width = std::max(3 * width, model.shape.inner);
    std::size_t packed_size = 0;
    std::vector<std::size_t> offsets;
    for (const std::size_t length : lengths) {
        starts_.push_back(starts_.back() + length);
        offsets.push_back(packed_size);
        packed_size += (padded_length(length) + length) * width;
    }
    x_.reserve(rows() * width), queries_.reserve(rows() * width);
    packed_.reserve(packed_size);
    for (const std::size_t offset : offsets) keys_.push_back(packed_.data() + offset);
    const std::size_t part_rows = (rows() + num_parts() - 1) / num_parts();
    for (int thread = 0; thread < team.threads(); ++thread)
        workspaces_.push_back(
            {Attention(model.heads), {}, Buffer(part_rows * width), Buffer(part_rows * width), Buffer(part_rows * wide_width)});
}

// As many for each thread.
std::size_t SequencePass::num_parts() const {
    const auto threads = static_cast<std::size_t>(team_.threads()),
               busy = std::clamp<std::size_t>(rows() / min_rows_per_part(model_.shape), 1, threads);
    return busy * std::max<std::size_t>(1, (rows() + busy * MAX_ROWS_PER_PART - 1) / (busy * MAX_ROWS_PER_PART));
}

// The partition is the same in every call: a part reads the queries that it wrote in the previous call.
template <typename Body>
void SequencePass::for_each_part(const Body& body) {
    const std::size_t width = model_.shape.width, parts = num_parts();
    ThreadTeam& gemm_team = parts == 1 ? team_ : ThreadTeam::single();
    team_.run(parts, [&](std::size_t part, int thread) {
        const std::size_t first = rows() * part / parts, last = rows() * (part + 1) / parts;
        body(Part{first, last, x_.data() + first * width, queries_.data() + first * width,
                  workspaces_[static_cast<std::size_t>(thread)], gemm_team});
    });
}

// Call body(sequence, first, last, row) for the positions [first,last) of each sequence within the part; `row` is the first of
// their rows in the part.
template <typename Body>
void SequencePass::for_each_sequence(const Part& part, const Body& body) const {
    for (std::size_t sequence = 0; sequence + 1 < starts_.size(); ++sequence) {
        const std::size_t first = std::max(part.first, starts_[sequence]), last = std::min(part.last, starts_[sequence + 1]);
        if (first < last) body(sequence, first - starts_[sequence], last - starts_[sequence], first - part.first);
    }
}

void SequencePass::multiply(const PackedMatrix& matrix, const QuantizedMatrix& quantized, const Part& part, const float* x,
                            float* y, Epilogue epilogue) const {
    gemm(matrix, quantized, x, part.rows(), y, epilogue, part.workspace.scratch, part.team);
}

// Project queries, keys and values; keys and values are packed where other parts read them.
template <typename Layer>
void SequencePass::project(const Layer& layer, const QuantizedLayer& quantized, const Part& part) {
    const std::size_t width = model_.shape.width;
    const bool pre_norm = model_.shape.pre_norm;
    if (pre_norm) layer.norm.apply(part.x, part.rows(), part.normed());
    multiply(layer.projection, quantized.projection, part, pre_norm ? part.normed() : part.x, part.wide(), Epilogue::STORE);
    for (std::size_t row = 0; row < part.rows(); ++row)
        std::copy_n(part.wide() + row * 3 * width, width, part.queries + row * width);
    for_each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
        const std::size_t length = starts_[sequence + 1] - starts_[sequence];
        pack_keys_values(part.wide() + row * 3 * width + width, 3 * width, first, last, length, width, keys_[sequence],
                         keys_[sequence] + padded_length(length) * width);
    });
}

// x += self-attention of each sequence
template <typename Layer>
void SequencePass::add_self_attention(const Layer& layer, const QuantizedLayer& quantized, const Part& part) const {
    const std::size_t width = model_.shape.width;
    for_each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
        const std::size_t length = starts_[sequence + 1] - starts_[sequence], padded = padded_length(length);
        part.workspace.attention.attend(part.queries + row * width, width, last - first,
                                        {length, padded, keys_[sequence], keys_[sequence] + padded * width},
                                        part.mixed() + row * width);
    });
    multiply(layer.output, quantized.output, part, part.mixed(), part.x, Epilogue::ADD);
    if (!model_.shape.pre_norm) layer.norm.apply(part.x, part.rows(), part.x);
}

// x += cross-attention of each sequence over its source
void SequencePass::add_cross_attention(const DecoderLayer& layer, const QuantizedLayer& quantized,
                                       const std::vector<KeyValues>& sources, const Part& part) const {
    const std::size_t width = model_.shape.width;
    residual(layer.cross_norm, model_.shape.pre_norm, part.x, part.rows(), part.normed(), [&](const float* input) {
        multiply(layer.cross_queries, quantized.cross_queries, part, input, part.wide(), Epilogue::STORE);
        for_each_sequence(part, [&](std::size_t sequence, std::size_t first, std::size_t last, std::size_t row) {
            part.workspace.attention.attend(part.wide() + row * width, width, last - first, sources[sequence],
                                            part.mixed() + row * width);
        });
        multiply(layer.cross_output, quantized.cross_output, part, part.mixed(), part.x, Epilogue::ADD);
    });
}

void SequencePass::add_feed_forward(const FeedForward& block, const QuantizedLayer& quantized, const Part& part) const {
    residual(block.norm, model_.shape.pre_norm, part.x, part.rows(), part.normed(), [&](const float* input) {
        multiply(block.widen, quantized.widen, part, input, part.wide(), block.activation);
        multiply(block.narrow, quantized.narrow, part, part.wide(), part.x, Epilogue::ADD);
    });
}

void SequencePass::encode(const EncoderLayer& layer, const QuantizedLayer& quantized) {
    for_each_part([&](const Part& part) { project(layer, quantized, part); });
    for_each_part([&](const Part& part) {
        add_self_attention(layer, quantized, part);
        add_feed_forward(layer.feed_forward, quantized, part);
    });
}

void SequencePass::decode(const DecoderLayer& layer, const QuantizedLayer& quantized, const std::vector<KeyValues>& sources) {
    for_each_part([&](const Part& part) { project(layer, quantized, part); });
    for_each_part([&](const Part& part) {
        add_self_attention(layer, quantized, part);
        add_cross_attention(layer, quantized, sources, part);
        add_feed_forward(layer.feed_forward, quantized, part);
    });
}

}  // namespace fewstep
