// Memory-mapped input files and output files written in one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>

namespace fewstep {

// A file that could not be opened, read or written, with the system's error code.
class FileError : public std::system_error {
  public:
    FileError(int error, const std::string& path) : std::system_error(error, std::generic_category(), path), path_(path) {}
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

// The bytes of a regular file: a small one is read, a larger one is mapped into read-only memory, which processes share. Throws
// FileError. A mapped file must be replaced by renaming another one to its name: when it is truncated in place, access to the lost
// pages ends the process.
class MappedFile {
  public:
    explicit MappedFile(const std::string& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

  private:
    void read(int file, std::size_t size);
    void map(int file, std::size_t size);

    std::string path_;
    std::unique_ptr<std::byte[]> copy_;  // of a small file
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

// A regular file that is read in ranges of bytes. It is open only while it is read, so that thousands can be used at once.
class SeekableFile {
  public:
    // Throws FileError.
    explicit SeekableFile(const std::string& path);

    // Fill `bytes` with the bytes from `offset` on. Throws FileError (EIO) when the file ends before.
    void read(std::uint64_t offset, std::span<std::byte> bytes) const;
    std::uint64_t size() const { return size_; }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
    std::uint64_t size_;
};

// A contiguous part of an output file.
using FilePart = std::span<const std::byte>;

template <typename T>
FilePart part(std::span<const T> values) {
    return std::as_bytes(values);
}

// Write the parts one after the other. Throws FileError if the file cannot be written completely.
void write_file(const std::string& path, std::span<const FilePart> parts);

// A checksum against accidental damage (FNV-1a over 8-byte words). `before` is the checksum of the preceding bytes.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t before = 0);

}  // namespace fewstep
