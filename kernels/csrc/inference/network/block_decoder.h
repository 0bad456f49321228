// The decoder of a Transformer over blocks of slots, of each sentence as many as it likes and wherever it has come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/transformer.h"

namespace fewstep {

// Slots [first, first + count) of a sentence. Keys and values of earlier slots are there from before; states are wanted of the last
// `wanted` slots.
struct Block {
    std::size_t sentence, first, count, num_outputs;
};

// What a slot sees: slots up to itself; those of its block and before it (the slots whose states are wanted), or up to itself
// (the others); all slots.
enum class Sight { CAUSAL, PREFIX, ALL };

// Keys and values lie in one place per sentence that is as long as its longest output. Taking slots back needs nothing but a block that
// begins earlier: what is stale is written over before it is seen.
class BlockDecoder {
 public:
    // `slots`: the largest number of slots of each sentence. `narrow`: the layers in fewer bits, if any.
    BlockDecoder(const Transformer& model, CrossCache memory, const std::vector<std::int64_t>& slots, Sight sight, bool codes_in_layers,
                  std::span<const QuantizedLayer> quantized, ThreadTeam& team);

    // Room for inputs [rows,D] of so many slots; whoever fills it calls `states` next.
    float* inputs(std::size_t rows);
    // From the inputs of all slots of the blocks, to states [sum of wanted,D].
    const float* states(std::span<const Block> blocks);

    // Input of a slot that carries a word (-1: none): sqrt(D) embedding + code.
    void embed(std::int64_t token, std::size_t slot, float* x) const;

    // Adds sqrt(D) embedding.
    void add_embedding(std::int64_t token, float* x) const;

 private:
    // Scratch memory of a thread.
    struct Workspace {
        Attention attention;
        std::vector<const float*> visible_slots;
        QuantizedRows scratch;
    };
    // Rows of blocks, or of the slots of one from some place on, with the threads that work on them.
    struct Part {
        std::span<const Block> blocks;
        std::size_t rows;
        float *x, *normed, *mixed, *wide;  // of the first row
        Workspace& workspace;
        ThreadTeam& team;
    };

    // x [rows,inputs] to y, rows `y_stride` floats apart, by a matrix of a layer.
    void multiply(const PackedMatrix& matrix, const QuantizedMatrix QuantizedLayer::*quantized, std::size_t layer, const Part& part, const float* x, float* y,
                  std::size_t y_stride, Epilogue epilogue);
    void add_codes(std::span<const Block> blocks);
    void project(std::size_t layer, const Part& part);
    // A layer from the attention on, keys and values of all rows being there; returns the rows that are left.
    std::size_t finish_layer(std::size_t layer, const Part& part);
    void cache_keys_values(std::size_t layer, const Part& part);
    void attend_to_slots(std::size_t layer, const Part& part, bool last);
    void attend_to_source(std::size_t layer, const Part& part, bool last);
    void keep_output_rows(const Part& part);

    float* cached(std::size_t layer, std::size_t sentence) { return keys_and_values_.data() + (layer * slots_ + starts_[sentence]) * 2 * width_; }

    const Transformer& model_;
    CrossCache memory_;
    Sight sight_;
    bool codes_in_layers_;
    std::span<const QuantizedLayer> quantized_;
    ThreadTeam& team_;
    std::size_t width_, wide_width_, slots_ = 0;
    std::vector<std::size_t> starts_;  // by sentence: its first slot among those of all
    Buffer keys_and_values_;           // [layers,slots,2D]
    std::vector<Workspace> workspaces_;        // of the team's threads
    Buffer x_, normed_, mixed_, wide_;
};

}  // namespace fewstep
