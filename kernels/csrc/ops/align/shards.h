// fast_align over shards: the cells of all shards by rows, and counts and probabilities that travel between a shard and the whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/ops/align/support.h"

namespace fewstep {

// The cells of one shard, or of the whole. Rows as in Support.
struct CellsView {
    std::span<const std::uint64_t> row_starts;
    std::span<const std::uint32_t> columns;

    std::span<const std::uint32_t> row(std::size_t index) const {
        return columns.subspan(row_starts[index], row_starts[index + 1] - row_starts[index]);
    }
};

// All cells of the shards, the columns of each row ascending.
Support merge_cells(const std::vector<CellsView>& shards);

// Where the shard's cells lie in the whole's rows.
std::vector<std::uint32_t> cell_offsets(const CellsView& whole, const CellsView& shard);

// What is cut out of a shard and of the whole by the same range of rows.
struct RowRange {
    std::span<const std::uint64_t> whole_starts, shard_starts;  // rows + 1 each
    std::span<const std::uint32_t> offsets;                      // of the shard's cells in these rows

    // Calls body(cell of the shard, cell of the whole), both counted from the first of the range.
    template <typename Body>
    void each(const Body& body) const {
        for (std::size_t row = 0; row + 1 < whole_starts.size(); ++row) {
            const std::uint64_t first = whole_starts[row] - whole_starts[0];
            for (std::uint64_t cell = shard_starts[row]; cell < shard_starts[row + 1]; ++cell)
                body(cell - shard_starts[0], first + offsets[cell - shard_starts[0]]);
        }
    }
};

}  // namespace fewstep
