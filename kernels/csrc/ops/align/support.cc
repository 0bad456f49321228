#include "csrc/ops/align/support.h"

#include <algorithm>

#include "csrc/base/parallel.h"

namespace fewstep {

namespace {

// The occurrences of each source word: (usable pair, position), in order.
struct Occurrences {
    std::vector<std::uint64_t> starts;
    std::vector<std::uint32_t> pairs, positions;

    Occurrences(const Sentences& source, const UsablePairs& usable, std::uint32_t words) : starts(words + 1) {
        for (const std::int64_t pair : usable.pairs)
            for (const std::uint32_t word : source[pair]) ++starts[word + 1];
        for (std::uint32_t word = 0; word < words; ++word) starts[word + 1] += starts[word];
        pairs.resize(starts.back());
        positions.resize(starts.back());
        std::vector<std::uint64_t> next(starts.begin(), starts.end() - 1);
        for (std::size_t p = 0; p < usable.pairs.size(); ++p) {
            std::uint32_t position = 0;
            for (const std::uint32_t word : source[usable.pairs[p]]) {
                pairs[next[word]] = static_cast<std::uint32_t>(p);
                positions[next[word]++] = position++;
            }
        }
    }
};

// Numbers the distinct columns of successive rows.
class Columns {
  public:
    Columns(std::uint32_t target_size, bool keep) : row_of_(target_size, 0), offset_of_(target_size), keep_(keep) {}

    void start_row() { ++row_, size_ = 0; }
    std::uint32_t offset(std::uint32_t column) {
        if (row_of_[column] != row_) {
            row_of_[column] = row_;
            offset_of_[column] = size_++;
            if (keep_) found.push_back(column);
        }
        return offset_of_[column];
    }
    std::uint32_t size() const { return size_; }

    std::vector<std::uint32_t> found;  // of all rows so far, if they are kept

  private:
    std::vector<std::uint32_t> row_of_, offset_of_;
    std::uint32_t row_ = 0, size_ = 0;
    bool keep_;
};

constexpr std::int64_t ROWS = 64;  // rows that a thread takes at a time

// The thread and the first column of a block of ROWS rows.
struct RowBlock {
    std::uint32_t thread = 0;
    std::size_t start = 0;
};

void collect_null_row(const Sentences& target, const UsablePairs& usable, std::uint32_t target_size, bool keep, Cells& cells) {
    Columns columns(target_size, keep);
    columns.start_row();
    cells.offsets.null.assign(target_size, 0);
    for (const std::int64_t pair : usable.pairs)
        for (const std::uint32_t word : target[pair]) cells.offsets.null[word] = columns.offset(word);
    cells.support.row_starts[1] = columns.size();
    cells.support.columns = std::move(columns.found);
}

template <typename Offset>
void collect(const Sentences& target, const UsablePairs& usable, const Occurrences& occurrences, std::uint32_t source_size,
             std::uint32_t target_size, bool keep, int threads, std::vector<Offset>& blocks, Cells& cells) {
    const std::int64_t num_blocks = (source_size + ROWS - 1) / ROWS;
    std::vector<Columns> columns;
    const std::int64_t num_workers = std::min<std::int64_t>(threads, num_blocks);  // the number of threads of parallel_for
    columns.reserve(static_cast<std::size_t>(num_workers));
    for (std::int64_t thread = 0; thread < num_workers; ++thread) columns.emplace_back(target_size, keep);
    std::vector<RowBlock> block_of(static_cast<std::size_t>(num_blocks));
    auto& row_starts = cells.support.row_starts;
    parallel_for(num_blocks, threads, [&](std::int64_t block_index, int thread) {
        Columns& row = columns[static_cast<std::size_t>(thread)];
        block_of[static_cast<std::size_t>(block_index)] = {static_cast<std::uint32_t>(thread), row.found.size()};
        const auto end = std::min<std::int64_t>(source_size, (block_index + 1) * ROWS);
        for (auto word = static_cast<std::size_t>(block_index * ROWS); word < static_cast<std::size_t>(end); ++word) {
            row.start_row();
            for (std::uint64_t at = occurrences.starts[word]; at < occurrences.starts[word + 1]; ++at) {
                const auto words = target[usable.pairs[occurrences.pairs[at]]];
                Offset* offset = &blocks[cells.offsets.starts[occurrences.pairs[at]] + occurrences.positions[at] * words.size()];
                for (const std::uint32_t column : words) *offset++ = static_cast<Offset>(row.offset(column));
            }
            row_starts[word + 2] = row.size();
        }
    });
    for (std::size_t row = 2; row < row_starts.size(); ++row) row_starts[row] += row_starts[row - 1];
    if (!keep) return;
    cells.support.columns.resize(row_starts.back());
    parallel_for(num_blocks, threads, [&](std::int64_t block_index, int) {
        const auto [thread, start] = block_of[static_cast<std::size_t>(block_index)];
        const auto first = static_cast<std::size_t>(block_index * ROWS) + 1;
        const auto last = std::min<std::size_t>(source_size, static_cast<std::size_t>((block_index + 1) * ROWS)) + 1;
        const auto found = columns[thread].found.begin() + static_cast<std::ptrdiff_t>(start);
        std::copy_n(found, row_starts[last] - row_starts[first],
                    cells.support.columns.begin() + static_cast<std::ptrdiff_t>(row_starts[first]));
    });
}

}  // namespace

UsablePairs::UsablePairs(const Sentences& source, const Sentences& target, std::int64_t max_length) {
    for (std::int64_t pair = 0; pair < source.size(); ++pair) {
        const auto n = static_cast<std::int64_t>(source[pair].size()), m = static_cast<std::int64_t>(target[pair].size());
        if (n == 0 || m == 0)
            ++empty;
        else if (n > max_length || m > max_length)
            ++too_long;
        else
            pairs.push_back(pair);
    }
}

Cells collect_cells(const Sentences& source, const Sentences& target, const UsablePairs& usable, std::uint32_t source_size,
                    std::uint32_t target_size, bool null_word, bool keep_columns, int threads) {
    Cells cells;
    cells.support.row_starts.assign(source_size + 2, 0);
    if (null_word) collect_null_row(target, usable, target_size, keep_columns, cells);
    std::uint64_t pairs_of_positions = 0;
    for (const std::int64_t pair : usable.pairs) {
        cells.offsets.starts.push_back(pairs_of_positions);
        pairs_of_positions += source[pair].size() * target[pair].size();
    }
    const Occurrences occurrences(source, usable, source_size);
    const auto fill = [&](auto& blocks) {
        blocks.resize(pairs_of_positions);
        collect(target, usable, occurrences, source_size, target_size, keep_columns, threads, blocks, cells);
    };
    if (target_size <= 0x10000)
        fill(cells.offsets.blocks.emplace<std::vector<std::uint16_t>>());
    else
        fill(cells.offsets.blocks.emplace<std::vector<std::uint32_t>>());
    return cells;
}

}  // namespace fewstep
