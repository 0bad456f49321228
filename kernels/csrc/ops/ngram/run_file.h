// Counts of n-grams on disk: a part of a text becomes a sorted run of histories and their counts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/files.h"
#include "csrc/ops/ngram/corpus.h"

namespace fewstep {

// The header of a run, little-endian. The records follow: `order` words and a count of 32 bits each. The words are a history, the
// last word first; <s> is repeated to the end of a shorter one. Records are in ascending order of their words.
struct NgramRunHeader {
    std::array<char, 8> magic{'F', 'S', 'N', 'G', 'R', 'U', 'N', '\n'};
    std::uint32_t version = 1, bytes = sizeof(NgramRunHeader);
    std::uint32_t order = 0;
    std::uint32_t words = 0;       // of the whole text, special ones included; ids are below
    std::uint64_t vocabulary = 0;  // checksum of the words, as NgramWords takes them
    std::uint64_t sentences = 0, tokens = 0, skipped = 0;
    std::uint64_t records = 0;
    std::uint64_t body = 0;   // checksum of the records, block by block
    std::uint64_t check = 0;  // checksum of the preceding fields
};
static_assert(sizeof(NgramRunHeader) == 80);

inline constexpr std::uint64_t NGRAM_RUN_BLOCK = 4096;  // records

// Count the histories of a part of a text into a file. `words` are those of the whole text (see NgramWords).
// Throws std::invalid_argument for invalid options and words that are not those of the text, std::length_error for more than 2^32 -
// 2 words, FileError.
NgramRunHeader write_ngram_run(std::string_view text, std::string_view words, int order, bool skip_special, int threads,
                               const std::string& path);

// A run. Throws std::invalid_argument for a file that is not a run, is truncated or altered, or has impossible records; FileError.
// Memory holds one block of records at a time.
class NgramRunFile {
  public:
    explicit NgramRunFile(const std::string& path);

    const NgramRunHeader& header() const { return header_; }
    const std::string& path() const { return file_.path(); }
    std::size_t stride() const { return header_.order + std::size_t{1}; }

    // Fill `values` with those of the records from number `first` on.
    void read(std::uint64_t first, std::span<std::uint32_t> values) const;

    // The number of the first record whose last word is at least `word`.
    std::uint64_t find(std::uint32_t word) const;

  private:
    void check_header() const;
    void check_records() const;
    [[noreturn]] void fail(const std::string& what) const;

    SeekableFile file_;
    NgramRunHeader header_;
};

}  // namespace fewstep
