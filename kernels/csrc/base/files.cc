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

namespace {

constexpr std::size_t MAX_READ_BYTES = std::size_t{16} << 20;  // larger files are mapped

class Descriptor {
  public:
    // O_NONBLOCK: opening a pipe without a writer would wait for one.
    explicit Descriptor(const std::string& path) : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (number < 0) throw FileError(errno, path);
    }
    ~Descriptor() { ::close(number); }
    const int number;
};

// The size of a regular file. Throws FileError for anything else.
std::size_t size_of(const Descriptor& file, const std::string& path) {
    struct stat status{};
    if (::fstat(file.number, &status) != 0) throw FileError(errno, path);
    if (S_ISDIR(status.st_mode)) throw FileError(EISDIR, path);
    if (!S_ISREG(status.st_mode)) throw FileError(ENODEV, path);
    return static_cast<std::size_t>(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
    const Descriptor file(path);
    const std::size_t size = size_of(file, path);
    size <= MAX_READ_BYTES ? read(file.number, size) : map(file.number, size);
}

// Read up to `size` bytes, fewer if the file was truncated meanwhile.
void MappedFile::read(int file, std::size_t size) {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(size);
    while (size_ < size) {
        const ssize_t count = ::read(file, copy_.get() + size_, size - size_);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw FileError(errno, path_);
        if (count == 0) break;
        size_ += static_cast<std::size_t>(count);
    }
    data_ = copy_.get();
}

void MappedFile::map(int file, std::size_t size) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) throw FileError(errno, path_);
    data_ = static_cast<const std::byte*>(data);
    size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      copy_(std::move(other.copy_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
    if (data_ && !copy_) ::munmap(const_cast<std::byte*>(data_), size_);
}

SeekableFile::SeekableFile(const std::string& path) : path_(path), size_(size_of(Descriptor(path), path)) {}

void SeekableFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
    const Descriptor file(path_);
    while (!bytes.empty()) {
        const ssize_t count = ::pread(file.number, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) throw FileError(count < 0 ? errno : EIO, path_);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        offset += static_cast<std::uint64_t>(count);
    }
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
