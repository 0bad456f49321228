// Multi-head attention, softmax(q K^T / sqrt(d)) V per head (Vaswani et al. 2017, section 3.2), over contiguous sequences or over
// separate slots.
#pragma once

#include <cstddef>
#include <vector>

#include "csrc/base/buffer.h"

namespace fewstep {

struct Heads {
    std::size_t count, size;  // H, d

    std::size_t width() const { return count * size; }
};

// Keys and values of a sequence whose positions are all visible: keys transposed, [D,padded], so that a dot product runs along the
// sequence; values [S,D]. `padded` is S rounded up to whole vectors; the keys beyond S are zero.
struct KeyValues {
    std::size_t length, padded;
    const float *keys, *values;
};

std::size_t padded_length(std::size_t length);  // S rounded up to whole vectors
// Pack the positions [first,last) of a sequence into keys [D,padded] and values [S,D]. The source rows are `stride` floats apart
// and hold keys and values [2D], or keys only [D]. Packing the last position also clears the keys behind it.
void pack_keys(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length, std::size_t width,
               float* keys);
void pack_keys_values(const float* rows, std::size_t stride, std::size_t first, std::size_t last, std::size_t length,
                      std::size_t width, float* keys, float* values);

// The earlier slots that are visible to a slot.
enum class SlotMask { BLOCK, CAUSAL, SAME_DIRECTION };

// Attention with its scratch memory. Queries [rows,D] are `stride` floats apart, outputs [rows,D] are contiguous.
class Attention {
  public:
    explicit Attention(const Heads& heads) : heads_(heads) {}

    void attend(const float* queries, std::size_t stride, std::size_t rows, const KeyValues& keys_values, float* outputs);
    // Attend to slots whose keys [D] are at `slots`, followed by their values [D]. `visible` [rows,slots] (empty: all) is 0 for
    // slots that a query must not see; at least one is visible.
    void attend(const float* queries, std::size_t stride, std::size_t rows, const std::vector<const float*>& slots,
                const std::vector<char>& visible, float* outputs);

  private:
    Heads heads_;
    Buffer weights_;  // [ROW_BLOCK,H,padded]
};

}  // namespace fewstep
