// The decoder of a Transformer over blocks of slots; each sentence has a block of its own position and length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/transformer.h"

namespace fewstep {

// Slots [first, first + count) of a sentence. The keys and values of earlier slots are cached; states are returned for the last
// `num_outputs` slots. With `parents` the rows of a causal block are the nodes of a tree, breadth-first: the first row is the root,
// row n > 0 follows row `parents[n - 1]`, and each row sees the earlier slots, the rows above it and itself. Row n then occupies
// entry first + n of the cache until `keep_path`. The block has the rows after the first `num_cached` ones of the tree, whose keys
// and values are cached.
struct Block {
    std::size_t sentence, first, count, num_outputs;
    std::span<const std::size_t> parents = {};
    std::size_t num_cached = 0;
};

// The slots visible to a slot. CAUSAL: those up to itself. PREFIX: for output slots those of the block and before it, for other
// slots those up to themselves. ALL: all slots.
enum class Sight { CAUSAL, PREFIX, ALL };

// The cache of a sentence has room for its longest output. Taking slots back requires no operation: a block that begins earlier
// overwrites stale entries before they are read.
class BlockDecoder {
  public:
    // `slots`: the maximum number of slots of each sentence. `quantized`: the layers in the precision of the products.
    BlockDecoder(const Transformer& model, CrossCache cross_cache, const std::vector<std::int64_t>& slots, Sight sight,
                 bool codes_in_layers, std::span<const QuantizedLayer> quantized, ThreadTeam& team);

    // Return a buffer for the inputs [rows,D] of the next call of `states`.
    float* inputs(std::size_t rows);
    // Compute states [sum of num_outputs,D] from the inputs of all slots of the blocks.
    const float* states(std::span<const Block> blocks);
    // Move the keys and values of the rows `path` of a tree, ascending from row 0, to the entries from `first` on.
    void keep_path(std::size_t sentence, std::size_t first, std::span<const std::size_t> path);

    // The input of a slot: embedding(token), scaled, + position code (token -1: position code only).
    void embed(std::int64_t token, std::size_t slot, float* x) const;

    // x += embedding(token), scaled
    void add_embedding(std::int64_t token, float* x) const;

  private:
    // Scratch memory of a thread.
    struct Workspace {
        Attention attention;
        std::vector<const float*> visible_slots;
        QuantizedRows scratch;
    };
    // Rows of blocks, or a range of the rows of one block, with the threads that process them.
    struct Part {
        std::span<const Block> blocks;
        std::size_t rows;
        float *x, *normed, *mixed, *wide;  // of the first row
        Workspace& workspace;
        ThreadTeam& team;
    };

    // Multiply x [rows,inputs] by a matrix of a layer into y, whose rows are `y_stride` floats apart.
    void multiply(const PackedMatrix& matrix, const QuantizedMatrix QuantizedLayer::* quantized, std::size_t layer,
                  const Part& part, const float* x, float* y, std::size_t y_stride, Epilogue epilogue);
    void add_codes(std::span<const Block> blocks);
    void project(std::size_t layer, const Part& part);
    // Run a layer from its attention on, with the keys and values of all rows cached. Return the number of remaining rows.
    std::size_t finish_layer(std::size_t layer, const Part& part);
    void cache_keys_values(std::size_t layer, const Part& part);
    void attend_to_slots(std::size_t layer, const Part& part, bool last);
    void attend_to_tree(const Block& block, const Part& part, const float* cache, const float* queries, float* mixed);
    void attend_to_source(std::size_t layer, const Part& part, bool last);
    void keep_output_rows(const Part& part);

    float* cached(std::size_t layer, std::size_t sentence) {
        return keys_and_values_.data() + (layer * slots_ + starts_[sentence]) * 2 * width_;
    }

    const Transformer& model_;
    CrossCache cross_cache_;
    Sight sight_;
    bool codes_in_layers_;
    std::span<const QuantizedLayer> quantized_;
    ThreadTeam& team_;
    std::size_t width_, wide_width_, slots_ = 0;
    std::vector<std::size_t> starts_;    // by sentence: offset of its first slot
    Buffer keys_and_values_;             // [layers,slots,2D]
    std::vector<Workspace> workspaces_;  // by thread of the team
    Buffer x_, normed_, mixed_, wide_;
};

}  // namespace fewstep
