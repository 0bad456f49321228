// Which (source word, target word) cells a text can align, and the cell of each pair of positions.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "csrc/ops/align/bitext.h"

namespace fewstep {

// Cells by rows: row 0 is the null word, row e + 1 the source word e. The columns of a row are target words, each once.
struct Support {
    std::vector<std::uint64_t> row_starts;  // rows + 1
    std::vector<std::uint32_t> columns;     // by cell; empty where only EM is to be done, which does not look at them

    std::int64_t rows() const { return static_cast<std::int64_t>(row_starts.size()) - 1; }
    std::uint64_t cells() const { return row_starts.back(); }
};

// The pairs of a text that take part: neither side is empty or longer than `max_length` words.
struct UsablePairs {
    std::vector<std::int64_t> pairs;
    std::int64_t empty = 0, too_long = 0;

    UsablePairs(const Sentences& source, const Sentences& target, std::int64_t max_length);
};

// For each usable pair an n by m block, by source position and then target position: the place of the cell in its row. Sixteen
// bits are enough where the target language has no more words than that.
struct CellOffsets {
    std::variant<std::vector<std::uint16_t>, std::vector<std::uint32_t>> blocks;
    std::vector<std::uint64_t> starts;  // by usable pair
    std::vector<std::uint32_t> null;    // by target word
};

struct Cells {
    Support support;
    CellOffsets offsets;
};

// Cells in order of first appearance within each row; the null row is empty when `null_word` is false. Without `keep_columns` the
// support is left without columns.
Cells collect_cells(const Sentences& source, const Sentences& target, const UsablePairs& usable, std::uint32_t source_size,
                    std::uint32_t target_size, bool null_word, bool keep_columns, int threads);

}  // namespace fewstep
