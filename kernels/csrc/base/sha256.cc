#include "csrc/base/sha256.h"

#include <algorithm>
#include <bit>

namespace fewstep {

namespace {

constexpr std::array<std::uint32_t, 64> ROUND_CONSTANTS{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* bytes) {
    const auto at = [bytes](int i) { return static_cast<std::uint32_t>(bytes[i]); };
    return at(0) << 24 | at(1) << 16 | at(2) << 8 | at(3);
}

}  // namespace

void Sha256::update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::size_t filled = length_ % 64;
        const std::size_t taken = std::min(bytes.size(), 64 - filled);
        std::copy_n(bytes.begin(), taken, block_.begin() + static_cast<std::ptrdiff_t>(filled));
        length_ += taken;
        if (filled + taken == 64) process_block(block_.data());
        bytes = bytes.subspan(taken);
    }
}

Digest Sha256::digest() const {
    Sha256 last = *this;
    std::array<std::byte, 72> padding{std::byte{0x80}};
    const std::size_t zeros = (119 - length_ % 64) % 64;  // after the 1 bit, such that the 8 bytes of the length end a block
    for (std::size_t i = 0; i < 8; ++i) padding[1 + zeros + i] = static_cast<std::byte>(length_ * 8 >> (56 - 8 * i));
    last.update(std::span(padding).first(9 + zeros));
    Digest result{};
    for (std::size_t i = 0; i < 32; ++i) result[i] = static_cast<std::uint8_t>(last.state_[i / 4] >> (24 - 8 * (i % 4)));
    return result;
}

void Sha256::process_block(const std::byte* block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t near = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        const std::uint32_t far = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + near + w[i - 7] + far;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t choice = (e & f) ^ (~e & g);
        const std::uint32_t first =
            h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + ROUND_CONSTANTS[i] + w[i];
        const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        const std::uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
        h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

}  // namespace fewstep
