#include "csrc/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace fewstep {

MappedFile::MappedFile(const std::string& path) : path_(path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw FileError(errno, path);
    struct stat status{};
    int error = ::fstat(file, &status) == 0 ? 0 : errno;
    if (!error && S_ISDIR(status.st_mode)) error = EISDIR;
    if (!error && status.st_size > 0) {
        void* data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
        if (data == MAP_FAILED) {
            error = errno;
        } else {
            data_ = static_cast<const std::byte*>(data);
            size_ = static_cast<std::size_t>(status.st_size);
        }
    }
    ::close(file);
    if (error) throw FileError(error, path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void write_file(const std::string& path, std::span<const FilePart> parts) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (!file) throw FileError(errno, path);
    int error = 0;
    for (const FilePart& bytes : parts) {
        if (error || bytes.empty()) continue;
        if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) error = errno ? errno : EIO;
    }
    if (std::fclose(file) != 0 && !error) error = errno;
    if (error) throw FileError(error, path);
}

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before) {
    std::uint64_t hash = before ^ 14695981039346656037ull;
    while (!bytes.empty()) {
        const std::size_t taken = std::min(bytes.size(), sizeof(std::uint64_t));
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), taken);
        hash = (hash ^ word) * 1099511628211ull;
        bytes = bytes.subspan(taken);
    }
    return hash;
}

}  // namespace fewstep
