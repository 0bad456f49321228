// The number of slots of a target, and the inputs of empty slots (`models/parallel/inputs.py` has the formulas).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

enum class SlotInput { MASK, UNIFORM, SOFT, REPEAT, GAUSSIAN };

struct Slots {
    SlotInput input;
    std::int64_t mask;           // input token of hidden slots
    double temperature;          // of mixtures
    double upsampling;           // slots per source token; 0: the number is predicted
    std::int64_t length_offset;  // class of a target as long as its source; 0: classes are lengths
    std::int64_t min_slots;      // smallest number of slots
};

// The number of slots of a source of `tokens` tokens, if sources are upsampled.
std::size_t upsampled(const Slots& slots, std::size_t tokens);

// The distinct numbers of slots, at most `max_slots` each, for the logits of length classes: the `count` most probable ones, ties
// by class, or those around the most probable one, which comes first.
std::vector<std::size_t> predicted_lengths(const Slots& slots, const std::vector<float>& logits, std::size_t tokens,
                                           std::size_t max_slots, std::size_t count, bool around);

// The weights of source tokens in the input of a slot of a target of `size` slots; copies have a single weight of 1.
struct SourceWeight {
    std::size_t token;
    float weight;
};
void source_weights(const Slots& slots, std::size_t slot, std::size_t size, std::size_t tokens, std::vector<SourceWeight>& weights);

}  // namespace fewstep
