// The decoder of a Transformer one step of z slots at a time, over keys and values that it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/inference/network/transformer.h"

namespace fewstep {

// How slots are laid out in steps, and which of them a slot sees.
struct SlotRules {
    std::size_t step_size = 1;  // z
    SlotMask mask = SlotMask::BLOCK;
    std::size_t directions = 1;  // of SAME_DIRECTION: slots equal modulo this
};

// At first one row for each sentence, then as many as `select` takes. Keys and values of a step stay where they were written: a row
// knows, for each step, which row wrote what it continues. So nothing is moved when rows are reordered.
class IncrementalDecoder {
 public:
    // Several threads share out the products of a step.
    IncrementalDecoder(const Transformer& model, const SlotRules& rules, const Sources& sources, ThreadTeam& team);

    // The z tokens [R,z] of the step before (nothing at first) to states [R*z,D] of the next z slots.
    const float* step(std::span<const std::int64_t> tokens);
    // Go on with these rows, in this order: so many (`counts`) for each of the sentences `going`.
    void select_rows(std::span<const std::int64_t> rows, std::span<const std::int64_t> active, std::span<const std::int64_t> counts);

    std::size_t rows() const { return ancestors_.size(); }

 private:
    void embed(std::span<const std::int64_t> tokens);
    void update_mask();
    void attend_to_slots(std::size_t layer);
    void attend_to_source(std::size_t layer);

    const Transformer& model_;
    SlotRules rules_;
    ThreadTeam& team_;
    CrossCache memory_;
    std::vector<std::size_t> sentences_;               // that go on, as places in `memory_`
    std::vector<std::size_t> counts_;                  // rows of each of them
    std::vector<std::vector<std::uint32_t>> ancestors_;  // [R][steps] the row that wrote each step
    std::vector<Buffer> steps_;                        // [layers,rows then,z,2D]
    std::vector<std::size_t> step_rows_;               // rows of each step when it was written
    Attention attention_;
    QuantizedRows scratch_;
    Buffer x_, normed_, mixed_, wide_;
    std::vector<const float*> slots_;
    std::vector<char> visible_;  // [z,slots]
};

}  // namespace fewstep
