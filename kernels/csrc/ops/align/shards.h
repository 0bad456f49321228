// Sharded fast_align: merged cells of all shards, and the exchange of counts and probabilities with a shard.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "csrc/ops/align/support.h"

namespace fewstep {

// The cells of one shard, or merged cells. Rows as in Support.
struct CellsView {
    std::span<const std::uint64_t> row_starts;
    std::span<const std::uint32_t> columns;

    std::span<const std::uint32_t> row(std::size_t index) const {
        return columns.subspan(row_starts[index], row_starts[index + 1] - row_starts[index]);
    }
};

// Merge the cells of all shards; the columns of each row are ascending.
Support merge_cells(const std::vector<CellsView>& shards);

// Return the offset of each of the shard's cells in its merged row.
std::vector<std::uint32_t> cell_offsets(const CellsView& whole, const CellsView& shard);

// A range of rows of a shard and of the merged cells.
struct RowRange {
    std::span<const std::uint64_t> whole_starts, shard_starts;  // rows + 1 entries each
    std::span<const std::uint32_t> offsets;                     // of the shard's cells in these rows

    // Call body(cell of the shard, merged cell), both relative to the range. Throws std::invalid_argument for an offset beyond its
    // row; the starts are ascending, and those of the shard fit the offsets.
    template <typename Body>
    void each(const Body& body) const {
        for (std::size_t row = 0; row + 1 < whole_starts.size(); ++row) {
            const std::uint64_t first = whole_starts[row] - whole_starts[0], size = whole_starts[row + 1] - whole_starts[row];
            for (std::uint64_t cell = shard_starts[row] - shard_starts[0]; cell < shard_starts[row + 1] - shard_starts[0]; ++cell) {
                if (offsets[cell] >= size)
                    throw std::invalid_argument("align: expected offsets of cells within their merged row, got " +
                                                std::to_string(offsets[cell]) + " in a row of " + std::to_string(size));
                body(cell, first + offsets[cell]);
            }
        }
    }
};

}  // namespace fewstep
