// Incremental decoding with a Transformer, z slots a step, with cached keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/transformer.h"

namespace fewstep {

// The layout of slots in steps, and the visibility of slots.
struct SlotRules {
    std::size_t step_size = 1;  // z
    SlotMask mask = SlotMask::BLOCK;
    std::size_t directions = 1;  // SAME_DIRECTION: slots that are equal modulo this see each other
};

// There is one row per sentence at first, then those of `select_rows`. The keys and values of a step stay where they were written;
// each row knows, for every step, the row that wrote its entry. Reordering rows therefore moves no memory.
class IncrementalDecoder {
  public:
    // The threads of the team share the products of a step.
    IncrementalDecoder(const Transformer& model, const SlotRules& rules, const Sources& sources, ThreadTeam& team);

    // Compute the states [R*z,D] of the next z slots from the tokens [R,z] of the previous step (empty in the first).
    const float* step(std::span<const std::int64_t> tokens);
    // Continue with these rows, in this order: `counts` rows for each of the `active` sentences.
    void select_rows(std::span<const std::int64_t> rows, std::span<const std::int64_t> active,
                     std::span<const std::int64_t> counts);

    std::size_t rows() const { return ancestors_.size(); }

  private:
    void embed(std::span<const std::int64_t> tokens);
    void update_mask();
    void attend_to_slots(std::size_t layer);
    void attend_to_source(std::size_t layer);

    const Transformer& model_;
    SlotRules rules_;
    ThreadTeam& team_;
    CrossCache cross_cache_;
    std::vector<std::size_t> sentences_;                 // active sentences, as indices into `cross_cache`
    std::vector<std::size_t> counts_;                    // rows of each active sentence
    std::vector<std::vector<std::uint32_t>> ancestors_;  // [R][steps] the row that wrote the entry of each step
    std::vector<Buffer> steps_;                          // by step: keys and values [layers,rows of the step,z,2D]
    std::vector<std::size_t> step_rows_;                 // rows of each step when it was written
    Attention attention_;
    QuantizedRows scratch_;
    Buffer x_, normed_, mixed_, wide_;
    std::vector<const float*> slots_;
    std::vector<char> visible_;  // [z,slots]
};

}  // namespace fewstep
