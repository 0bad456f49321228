// The mask of a row of units. For source files, as simd_f32.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "csrc/base/simd_f32.h"
#include "csrc/ops/training/dropout.h"

namespace fewstep {

// Unit i of a row is kept if its 32 bits are at least 2^32 times the probability. The bits are the hash lowbias32 of i
// (https://github.com/skeeto/hash-prospector), with one half of the row's key added to i and the other mixed in between the rounds.
// The key is number `row` of those that SplitMix64 (Steele et al. 2014) draws from the seed.
class DropoutMask {
  public:
    DropoutMask(const Dropout& options, std::uint64_t row)
        : threshold_(static_cast<std::uint32_t>(std::lround(static_cast<double>(options.probability) * 4294967296.0))),
          scale_(1.0F / (1.0F - options.probability)) {
        std::uint64_t key = options.seed + (row + 1) * 0x9e3779b97f4a7c15;
        key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
        key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
        key ^= key >> 31;
        first_ = lanes(std::make_integer_sequence<std::uint32_t, F32_LANES>()) + static_cast<std::uint32_t>(key);
        second_ = static_cast<std::uint32_t>(key >> 32);
    }

    // Return the factors of the units from `position`: 1 / (1 - probability) of those that are kept, 0 of others.
    F32Vector factors(std::size_t position) const {
        if (threshold_ == 0) return broadcast(1.0F);
        U32Vector bits = first_ + static_cast<std::uint32_t>(position);
        bits = (bits ^ (bits >> 16)) * 0x7feb352dU ^ second_;
        bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
        bits ^= bits >> 16;
        return bits >= threshold_ ? broadcast(scale_) : F32Vector{};
    }

  private:
    template <std::uint32_t... LANE>
    static U32Vector lanes(std::integer_sequence<std::uint32_t, LANE...>) {
        return U32Vector{LANE...};
    }

    U32Vector first_;
    std::uint32_t second_, threshold_;
    float scale_;
};

}  // namespace fewstep
