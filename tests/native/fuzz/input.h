// Inputs of a fuzzer as files, and headers whose checksums agree, so that mutations reach what lies behind them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/base/files.h"

namespace fewstep {

// A file in memory with these bytes.
class InputFile {
  public:
    explicit InputFile(std::span<const std::byte> bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
        if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
    }
    ~InputFile() { ::close(descriptor_); }
    std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  private:
    int descriptor_;
};

// A copy of the input whose number at `place` is the checksum of the bytes before it.
inline std::vector<std::byte> with_checksum(std::vector<std::byte> bytes, std::size_t place) {
    if (bytes.size() < place + sizeof(std::uint64_t)) return bytes;
    const std::uint64_t value = checksum(std::span(bytes).first(place));
    std::memcpy(bytes.data() + place, &value, sizeof value);
    return bytes;
}

inline std::vector<std::byte> copy_of(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    return {bytes.begin(), bytes.end()};
}

inline std::uint64_t number_at(const std::vector<std::byte>& bytes, std::size_t place) {
    std::uint64_t value = 0;
    if (bytes.size() >= place + sizeof value) std::memcpy(&value, bytes.data() + place, sizeof value);
    return value;
}

// Call read(path of a file with these bytes). Readers refuse a file by std::invalid_argument, std::runtime_error or FileError, and
// sizes that do not fit the memory by std::bad_alloc or std::length_error; anything else is a finding.
template <typename Read>
int refused_or_read(const std::vector<std::byte>& bytes, const Read& read) {
    const InputFile file(bytes);
    try {
        read(file.path());
    } catch (const std::invalid_argument&) {
    } catch (const std::runtime_error&) {
    } catch (const std::length_error&) {
    } catch (const std::bad_alloc&) {
    }
    return 0;
}

}  // namespace fewstep
