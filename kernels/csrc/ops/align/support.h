// The support of a text: its (source word, target word) cells, and the cell of each pair of positions.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "csrc/ops/align/bitext.h"

namespace fewstep {

// Cells by rows: row 0 is the null word, row e + 1 is source word e. The columns of a row are distinct target words.
struct Support {
    std::vector<std::uint64_t> row_starts;  // rows + 1 entries
    std::vector<std::uint32_t> columns;     // by cell; empty if only EM is run, which does not need them

    std::int64_t rows() const { return static_cast<std::int64_t>(row_starts.size()) - 1; }
    std::uint64_t cells() const { return row_starts.back(); }
};

// The usable pairs of a text: neither side is empty or longer than `max_length` words.
struct UsablePairs {
    std::vector<std::int64_t> pairs;
    std::int64_t empty = 0, too_long = 0;

    UsablePairs(const Sentences& source, const Sentences& target, std::int64_t max_length);
};

// For each usable pair an n by m block, in source-major order: the offset of the cell in its row. 16 bits suffice if the target
// vocabulary is at most that large.
struct CellOffsets {
    std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>> blocks;
    std::vector<std::uint64_t> starts;  // by usable pair
    std::vector<std::uint32_t> null;    // by target word
};

struct Cells {
    Support support;
    CellOffsets offsets;
};

// Number cells in order of first appearance within each row; the null row is empty unless `null_word`. Without `keep_columns` the
// support has no columns.
Cells collect_cells(const Sentences& source, const Sentences& target, const UsablePairs& usable, std::uint32_t source_size,
                    std::uint32_t target_size, bool null_word, bool keep_columns, int threads);

}  // namespace fewstep
