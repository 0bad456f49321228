// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fewstep {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
  public:
    void update(std::span<const std::byte> bytes);
    Digest digest() const;

  private:
    void process_block(const std::byte* block);

    std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<std::byte, 64> block_{};
    std::uint64_t length_ = 0;
};

}  // namespace fewstep
