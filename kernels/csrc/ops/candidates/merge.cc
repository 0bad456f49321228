#include "csrc/ops/candidates/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <stdexcept>
#include <utility>

namespace fewstep {

namespace {

constexpr std::uint64_t MAX_UINT32 = std::numeric_limits<std::uint32_t>::max();

std::uint32_t to_uint32(std::uint64_t value, const char* what) {
    if (value > MAX_UINT32) throw std::invalid_argument(std::string("candidate tables: expected fewer than 2^32 ") + what);
    return static_cast<std::uint32_t>(value);
}

// Call take(event, count) for every distinct event of the slices, ascending, with the sum of its counts.
template <typename Take>
void merge(std::span<const RunFile::Slice> slices, const Take& take) {
    using Head = std::pair<std::uint64_t, std::size_t>;  // the next event of a slice
    std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
    std::vector<std::size_t> next(slices.size(), 0);
    const auto push = [&](std::size_t slice) {
        if (next[slice] < slices[slice].events.size()) heads.emplace(slices[slice].events[next[slice]], slice);
    };
    for (std::size_t slice = 0; slice < slices.size(); ++slice) push(slice);
    while (!heads.empty()) {
        const std::uint64_t event = heads.top().first;
        std::uint64_t count = 0;
        while (!heads.empty() && heads.top().first == event) {
            const std::size_t slice = heads.top().second;
            heads.pop();
            count += slices[slice].counts[next[slice]++];
            push(slice);
        }
        take(event, count);
    }
}

// Digest of a sequence of (event, count) pairs.
class CountDigest {
  public:
    void add(std::uint64_t event, std::uint64_t count) {
        pending_.push_back(event), pending_.push_back(count);
        if (pending_.size() == PENDING_LIMIT) flush();
    }
    Digest digest() {
        flush();
        return hash_.digest();
    }

  private:
    void flush() {
        hash_.update(std::as_bytes(std::span(pending_)));
        pending_.clear();
    }

    static constexpr std::size_t PENDING_LIMIT = 1 << 12;
    std::vector<std::uint64_t> pending_;
    Sha256 hash_;
};

// Pieces and their counts, the most frequent of each row.
struct Entries {
    std::vector<std::uint32_t> pieces, counts;

    // Append the `top` best of `pending`, pairs (count, piece), and clear it. Return the number of links of these.
    std::uint64_t add(std::vector<std::pair<std::uint64_t, std::uint32_t>>& pending, std::uint32_t top) {
        const auto before = [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        };
        const std::size_t num_kept = std::min<std::size_t>(top, pending.size());
        std::partial_sort(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(num_kept), pending.end(), before);
        std::uint64_t kept = 0;
        for (std::size_t i = 0; i < num_kept; ++i) {
            pieces.push_back(pending[i].second);
            counts.push_back(to_uint32(pending[i].first, "equal links"));
            kept += pending[i].first;
        }
        pending.clear();
        return kept;
    }
};

// Builds the lexical sections row by row.
class Rows {
  public:
    Rows(const CountLimits& limits, const TableOptions& options) : limits_(limits), options_(options) {
        first_offsets.assign(limits.source_size, 0);
        row_starts.assign(limits.source_size + std::size_t{1}, 0);
        if (options.backoff > 0.0) unconditional_rows_.resize(limits.source_size);
    }

    void add(std::uint64_t event, std::uint64_t count) {
        if (event::row(event) != row_ || !total_) {
            finish_row();
            if (piece_of(event::row(event)) != piece_of(row_)) finish_unconditional();
            row_ = event::row(event);
        }
        total_ += count;
        const std::uint32_t y = event::piece(event);
        if (y >= options_.reserved) pending_.emplace_back(count, y);
        if (options_.backoff > 0.0) piece_counts_[y] += count;
    }

    void finish() {
        finish_row();
        finish_unconditional();
        start_piece(limits_.source_size);
        for (const auto& [total, best] : unconditional_rows_) {
            row_totals.push_back(to_uint32(total, "links of a source piece"));
            entries.pieces.insert(entries.pieces.end(), best.pieces.begin(), best.pieces.end());
            entries.counts.insert(entries.counts.end(), best.counts.begin(), best.counts.end());
            entry_starts.push_back(to_uint32(entries.pieces.size(), "entries"));
        }
    }

    std::vector<std::int32_t> first_offsets;
    std::vector<std::uint32_t> row_starts, entry_starts{0}, row_totals;
    Entries entries;
    std::uint64_t kept = 0;

  private:
    std::uint64_t width() const { return 2ull * limits_.max_offset + 1; }
    std::uint64_t piece_of(std::uint64_t row) const { return row / width(); }

    // Close the rows of all source pieces before x.
    void start_piece(std::uint64_t x) {
        for (; piece_ < x; ++piece_) row_starts[piece_ + 1] = to_uint32(row_totals.size(), "rows");
    }

    // Close the unconditional row of the current piece.
    void finish_unconditional() {
        if (piece_counts_.empty()) return;
        UnconditionalRow& row = unconditional_rows_[piece_of(row_)];
        for (const auto& [y, count] : piece_counts_) {
            row.total += count;
            if (y >= options_.reserved) pending_.emplace_back(count, y);
        }
        row.best.add(pending_, options_.top);
        piece_counts_.clear();
    }

    void finish_row() {
        if (!total_) return;
        const std::uint64_t x = piece_of(row_);
        const auto offset = static_cast<std::int32_t>(row_ % width()) - static_cast<std::int32_t>(limits_.max_offset);
        start_piece(x);
        if (row_totals.size() == row_starts[x]) first_offsets[x] = offset;
        const auto place = row_starts[x] + static_cast<std::size_t>(offset - first_offsets[x]);
        row_totals.resize(place, 0);  // unseen offsets in between
        entry_starts.resize(place + 1, to_uint32(entries.pieces.size(), "entries"));
        kept += entries.add(pending_, options_.top);
        row_totals.push_back(to_uint32(total_, "links in a row"));
        entry_starts.push_back(to_uint32(entries.pieces.size(), "entries"));
        total_ = 0;
    }

    const CountLimits& limits_;
    const TableOptions& options_;
    std::uint64_t piece_ = 0, row_ = 0, total_ = 0;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> pending_;  // (count, target piece) of the row
    std::map<std::uint32_t, std::uint64_t> piece_counts_;           // counts of the source piece at all offsets, by target piece
    struct UnconditionalRow {
        std::uint64_t total = 0;
        Entries best;
    };
    std::vector<UnconditionalRow> unconditional_rows_;  // [source_size] with a backoff
};

// Builds the prior sections event by event.
class Prior {
  public:
    void add(std::uint64_t event, std::uint64_t count) {
        const std::uint32_t length = event::source_length(event);
        if (starts.empty() || length != length_ || event::slot(event) != slot_) start_cell(length, event::slot(event));
        positions.push_back(static_cast<std::uint16_t>(event::position(event)));
        counts.push_back(to_uint32(count, "equal links"));
    }

    void finish() {
        starts.push_back(to_uint32(counts.size(), "prior counts"));
        length_starts.resize(length_ + std::size_t{2}, to_uint32(starts.size() - 1, "prior cells"));
    }

    std::uint32_t max_source() const { return length_; }

    std::vector<std::uint32_t> length_starts, starts, counts;
    std::vector<std::uint16_t> positions;

  private:
    void start_cell(std::uint32_t length, std::uint32_t slot) {
        length_starts.resize(length + std::size_t{1}, to_uint32(starts.size(), "prior cells"));
        starts.resize(length_starts[length] + slot + std::size_t{1}, to_uint32(counts.size(), "prior counts"));
        length_ = length, slot_ = slot;
    }

    std::uint32_t length_ = 0, slot_ = 0;
};

std::vector<RunFile> open_runs(std::span<const std::string> paths) {
    if (paths.empty()) throw std::invalid_argument("candidate tables: expected the counts of at least one shard");
    std::vector<RunFile> runs;
    runs.reserve(paths.size());
    for (const std::string& path : paths) {
        runs.emplace_back(path);
        if (runs.back().limits() == runs.front().limits()) continue;
        throw std::invalid_argument(path + ": expected counts with the limits of " + runs.front().path() +
                                    "; count all shards alike");
    }
    return runs;
}

std::vector<RunFile::Slice> slices(const std::vector<RunFile>& runs, const RunFile::Slice& (RunFile::*part)() const) {
    std::vector<RunFile::Slice> found;
    for (const RunFile& run : runs) found.push_back((run.*part)());
    return found;
}

// The blocks of a table file: the header, then each section with its zero padding.
class File {
  public:
    File(TableHeader& header, const std::array<FilePart, NUM_SECTIONS>& sections) {
        const TableLayout layout = layout_of(header);
        std::uint64_t end = sizeof header;
        for (std::size_t i = 0; i < sections.size(); ++i) {
            body_.push_back(FilePart(ZEROS).first(static_cast<std::size_t>(layout.sections[i].offset - end)));
            body_.push_back(sections[i]);
            end = layout.sections[i].offset + sections[i].size();
        }
        Sha256 hash;
        for (const FilePart& part : body_) hash.update(part);
        header.file_bytes = layout.file_bytes, header.body = hash.digest();
        header.check = checksum_of(header);
        body_.insert(body_.begin(), std::as_bytes(std::span(&header, 1)));
    }
    void write(const std::string& path) const { write_file(path, body_); }

  private:
    static constexpr std::array<std::byte, 64> ZEROS{};
    std::vector<FilePart> body_;
};

}  // namespace

TableHeader merge_candidates(std::span<const std::string> paths, const std::string& path, const TableOptions& options) {
    if (options.top < 1) throw std::invalid_argument("top: expected at least 1");
    if (!(options.tension >= 0.0) || std::isinf(options.tension))
        throw std::invalid_argument("tension: expected a number of at least 0");
    if (!(options.backoff >= 0.0) || std::isinf(options.backoff))
        throw std::invalid_argument("backoff: expected a number of at least 0");
    const std::vector<RunFile> runs = open_runs(paths);
    TableHeader header;
    header.limits = runs.front().limits();
    header.top = options.top, header.reserved = options.reserved;
    header.tension = options.tension, header.backoff = options.backoff, header.vocabulary = options.vocabulary;
    for (const RunFile& run : runs) header.totals.add(run.totals());
    if (!header.totals.are_possible(header.limits))
        throw std::invalid_argument("candidate tables: expected at most 2^40 pairs, got " +
                                    std::to_string(header.totals.lengths.pairs));
    header.regression = header.totals.lengths.regression();

    CountDigest links;
    Rows rows(header.limits, options);
    merge(slices(runs, &RunFile::lexical), [&](std::uint64_t event, std::uint64_t count) {
        links.add(event, count);
        rows.add(event, count);
    });
    rows.finish();
    Prior prior;
    merge(slices(runs, &RunFile::prior), [&](std::uint64_t event, std::uint64_t count) {
        links.add(event, count);
        prior.add(event, count);
    });
    prior.finish();

    header.id_bytes = header.limits.target_size <= 1u << 16 ? 2 : 4;
    header.max_source = prior.max_source();
    header.rows = to_uint32(rows.row_totals.size(), "rows"), header.entries = to_uint32(rows.entries.pieces.size(), "entries");
    header.cells = to_uint32(prior.starts.size() - 1, "prior cells");
    header.prior_counts = to_uint32(prior.counts.size(), "prior counts");
    header.kept = rows.kept, header.links = links.digest();
    const std::vector<std::uint16_t> narrow =
        header.id_bytes == 2 ? std::vector<std::uint16_t>(rows.entries.pieces.begin(), rows.entries.pieces.end())
                             : std::vector<std::uint16_t>();
    const FilePart pieces = header.id_bytes == 2 ? std::as_bytes(std::span(narrow)) : std::as_bytes(std::span(rows.entries.pieces));
    File(header, {std::as_bytes(std::span(rows.first_offsets)), std::as_bytes(std::span(rows.row_starts)),
                  std::as_bytes(std::span(rows.entry_starts)), std::as_bytes(std::span(rows.row_totals)), pieces,
                  std::as_bytes(std::span(rows.entries.counts)), std::as_bytes(std::span(prior.length_starts)),
                  std::as_bytes(std::span(prior.starts)), std::as_bytes(std::span(prior.positions)),
                  std::as_bytes(std::span(prior.counts))})
        .write(path);
    return header;
}

}  // namespace fewstep
