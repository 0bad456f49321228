// Candidate tables: conditional probabilities of the target piece at a slot, in one memory-mapped file.
//   lexical   P(y | x, offset) = (#(x, offset, y) + backoff P(y | x)) / (#(x, offset) + backoff)
//             P(y | x) = #(x, y) / #(x)         for the `top` most frequent y of each row (x, offset), and of each x
//   prior     P(a | S, t)      = #(S, t, a) / #(S, t)                0 <= a < S
//   length    predicted target length with EOS: round(slope * S + intercept + 1)
// Rows keep the total of all their links, so the entries of a truncated row sum to less than 1.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "csrc/base/files.h"
#include "csrc/base/sha256.h"
#include "csrc/inference/candidates/count_totals.h"

namespace fewstep {

// The header of a table file, little-endian. The sections follow in the order of `TableView`, each at a multiple of 64 bytes.
struct TableHeader {
    std::array<char, 8> magic{'F', 'E', 'W', 'T', 'A', 'B', 'L', 'E'};
    std::uint32_t version = 2, bytes = sizeof(TableHeader);
    CountLimits limits;
    std::uint32_t top = 40;        // maximum entries of a row
    std::uint32_t reserved = 7;    // smaller target pieces are in no row
    std::uint32_t id_bytes = 2;    // bytes of a target piece: 2 or 4
    std::uint32_t max_source = 0;  // longest source with prior cells
    std::uint32_t rows = 0, entries = 0, cells = 0, prior_counts = 0;
    LengthRegression regression;
    double tension = 4.0;  // of the diagonal prior for unseen (S, t)
    double backoff = 0.0;  // links that P(y | x) counts as in every row; 0: no rows for x at any offset
    CountTotals totals;
    std::uint64_t kept = 0;        // links of the entries
    std::uint64_t file_bytes = 0;  // of the whole file
    Digest vocabulary{};           // of both vocabularies, given by the caller
    Digest links{};                // of all counts before truncation
    Digest body{};                 // of all bytes after the header
    std::uint64_t check = 0;       // checksum of the preceding fields
};
static_assert(sizeof(TableHeader) == 296);

// The sections. Row r = row_starts[x] + offset - first_offsets[x] belongs to (x, offset), for first_offsets[x] <= offset and r <
// row_starts[x + 1]; its entries are entry_starts[r] to entry_starts[r + 1], ordered by count (descending) and piece. With a
// backoff, row row_starts[source_size] + x belongs to x at any offset. Prior cell c = length_starts[S] + t < length_starts[S + 1]
// has the counts prior_starts[c] to prior_starts[c + 1], one for each position to which slot t of sources of S pieces was linked,
// ascending.
struct TableView {
    std::span<const std::int32_t> first_offsets;     // [source_size]
    std::span<const std::uint32_t> row_starts;       // [source_size + 1]
    std::span<const std::uint32_t> entry_starts;     // [rows + 1]
    std::span<const std::uint32_t> row_totals;       // [rows] links of the row, truncated ones included
    std::span<const std::byte> pieces;               // [entries] of id_bytes each
    std::span<const std::uint32_t> counts;           // [entries]
    std::span<const std::uint32_t> length_starts;    // [max_source + 2]
    std::span<const std::uint32_t> prior_starts;     // [cells + 1]
    std::span<const std::uint16_t> prior_positions;  // [prior_counts]
    std::span<const std::uint32_t> prior_counts;     // [prior_counts]
};

// The layout of a table file with this header: offset and size of each section, and the size of the file.
constexpr std::size_t NUM_SECTIONS = 10;
struct TableLayout {
    struct Section {
        std::uint64_t offset, bytes;
    };
    std::array<Section, NUM_SECTIONS> sections;
    std::uint64_t file_bytes;
};
TableLayout layout_of(const TableHeader& header);

std::uint64_t checksum_of(const TableHeader& header);

// A memory-mapped table file. Loading reads only the header; look-ups check the entries that they read.
class CandidateTables {
  public:
    // Throws std::invalid_argument for a file that is not a table, has another version, is truncated or has an altered header, and
    // FileError for a file that cannot be opened.
    explicit CandidateTables(const std::string& path);

    const TableHeader& header() const { return header_; }
    const std::string& path() const { return file_.path(); }

    // Throws std::invalid_argument if a byte after the header was altered. Reads the whole file.
    void verify() const;

    // The entries of a row and the number of its links; both empty for an unseen row.
    struct Row {
        std::uint32_t first, last, total;
    };
    Row row(std::uint32_t x, std::int64_t offset) const {
        const std::int64_t behind = offset - view_.first_offsets[x];
        const std::int64_t start = view_.row_starts[x];
        if (behind < 0 || start + behind >= view_.row_starts[x + 1]) return {0, 0, 0};
        return row_at(static_cast<std::size_t>(start + behind));
    }

    // The same for any offset; only in tables with a backoff.
    Row row(std::uint32_t x) const { return row_at(std::size_t{view_.row_starts[header_.limits.source_size]} + x); }

    // Return the target piece of an entry, after a range check.
    std::uint32_t piece(std::uint32_t entry) const {
        const std::uint32_t y = header_.id_bytes == 2 ? pieces16_[entry] : pieces32_[entry];
        if (y >= header_.limits.target_size || y < header_.reserved) reject_damaged("entry", entry);
        return y;
    }
    std::uint32_t count(std::uint32_t entry) const { return view_.counts[entry]; }

    // The positions a with #(S, t, a) > 0, ascending, and these counts; empty for an unseen cell.
    struct Cell {
        std::span<const std::uint16_t> positions;
        std::span<const std::uint32_t> counts;
    };
    Cell prior(std::int64_t source_length, std::int64_t slot) const {
        if (source_length < 1 || source_length > header_.max_source) return {};
        const auto length = static_cast<std::size_t>(source_length);
        const std::int64_t cell = view_.length_starts[length] + slot;
        if (cell >= view_.length_starts[length + 1]) return {};
        const auto c = static_cast<std::size_t>(cell);
        if (c >= header_.cells) reject_damaged("prior cell", c);
        const std::uint32_t first = view_.prior_starts[c], last = view_.prior_starts[c + 1];
        if (first > last || last > header_.prior_counts) reject_damaged("prior cell", c);
        return {view_.prior_positions.subspan(first, last - first), view_.prior_counts.subspan(first, last - first)};
    }

  private:
    Row row_at(std::size_t r) const {
        if (r >= header_.rows) reject_damaged("row", r);
        const Row found{view_.entry_starts[r], view_.entry_starts[r + 1], view_.row_totals[r]};
        if (found.first > found.last || found.last > header_.entries || (found.first < found.last && !found.total))
            reject_damaged("row", r);
        return found;
    }
    [[noreturn]] void reject_damaged(const char* what, std::size_t index) const;

    MappedFile file_;
    TableHeader header_;
    TableView view_;
    const std::uint16_t* pieces16_ = nullptr;
    const std::uint32_t* pieces32_ = nullptr;
};

}  // namespace fewstep
