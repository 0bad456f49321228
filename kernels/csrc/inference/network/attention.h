// Attention: softmax(q K^T / sqrt(d)) V for each head, over keys and values that lie in either of two ways.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/base/buffer.h"

namespace fewstep {

struct Heads {
    std::size_t count, size;  // H, d

    std::size_t width() const { return count * size; }
};

// Keys and values of a sequence that all its readers see whole: keys turned, [D,room], so that a product with a query runs along
// the sequence; values [S,D]. `room` is S rounded up to whole vectors; the keys beyond S are zero.
struct KeyValues {
    std::size_t length, padded;
    const float *keys, *values;
};

std::size_t padded_length(std::size_t length);  // S rounded up
// Keys of the places [first,last) of a sequence, with values [last-first,2D] side by side or without [last-first,D], rows `stride` floats
// apart, to keys [D,room] and values [S,D]. Who lays out the last place clears the keys behind it.
void pack_keys(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width, float* keys);
void pack_keys_values(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width, float* keys,
             float* values);

// Which of the slots written so far a slot sees.
enum class SlotMask { BLOCK, CAUSAL, SAME_DIRECTION };

// Scratch memory of whoever attends. Queries [rows,D] lie `stride` floats apart, mixed values [rows,D] side by side.
class Attention {
 public:
    explicit Attention(const Heads& heads) : heads_(heads) {}

    void attend(const float* queries, std::size_t stride, std::size_t rows, const KeyValues& keys_values, float* outputs);
    // Over slots whose keys [D] are at `slots`, with the values [D] right behind them. `seen` [rows,slots] (empty: all) is 0 at
    // slots that a query must not see; it sees at least one.
    void attend(const float* queries, std::size_t stride, std::size_t rows, const std::vector<const float*>& slots,
                const std::vector<char>& visible, float* outputs);

 private:
    Heads heads_;
    Buffer weights_;  // [rows,H,room]
};

}  // namespace fewstep
