#include "csrc/ops/align/shards.h"

#include <algorithm>
#include <stdexcept>

namespace fewstep {

Support merge_cells(const std::vector<CellsView>& shards) {
    Support whole;
    whole.row_starts.push_back(0);
    const std::size_t rows = shards.empty() ? 0 : shards.front().row_starts.size() - 1;
    std::vector<std::uint32_t> row;
    for (std::size_t index = 0; index < rows; ++index) {
        row.clear();
        for (const CellsView& shard : shards) {
            const auto part = shard.row(index);
            row.insert(row.end(), part.begin(), part.end());
        }
        std::sort(row.begin(), row.end());
        row.erase(std::unique(row.begin(), row.end()), row.end());
        whole.columns.insert(whole.columns.end(), row.begin(), row.end());
        whole.row_starts.push_back(whole.columns.size());
    }
    return whole;
}

std::vector<std::uint32_t> cell_offsets(const CellsView& whole, const CellsView& shard) {
    std::vector<std::uint32_t> offsets;
    offsets.reserve(shard.columns.size());
    for (std::size_t index = 0; index + 1 < shard.row_starts.size(); ++index) {
        const auto row = whole.row(index);
        for (const std::uint32_t column : shard.row(index)) {
            const auto found = std::lower_bound(row.begin(), row.end(), column);
            if (found == row.end() || *found != column)
                throw std::invalid_argument(
                    "align: expected merged cells that contain those of each shard, got a shard with another cell; merge the cells "
                    "of all shards");
            offsets.push_back(static_cast<std::uint32_t>(found - row.begin()));
        }
    }
    return offsets;
}

}  // namespace fewstep
