// Candidate tables: counting, merging, loading, look-up.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/inference/candidates/lookup.h"
#include "csrc/inference/candidates/tables.h"
#include "csrc/ops/candidates/counts.h"
#include "csrc/ops/candidates/merge.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <typename T, int N = 1>
using Array = Given<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Output = Given<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

template <typename A>
auto span_of(const A& array) {
    return std::span(array.data(), array.size());
}

nb::bytes bytes_of(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

Counts describe(const CountTotals& totals) {
    Counts result;
    result["pairs"] = totals.lengths.pairs;
    result["empty"] = totals.empty;
    result["too_long"] = totals.too_long;
    result["source_pieces"] = totals.lengths.source;
    result["target_pieces"] = totals.lengths.target;
    result["linked"] = totals.linked;
    result["unlinked"] = totals.unlinked;
    result["dropped"] = totals.dropped;
    return result;
}

Description describe(const TableHeader& header) {
    Description result = describe(header.totals);
    result["source_size"] = header.limits.source_size;
    result["target_size"] = header.limits.target_size;
    result["max_offset"] = header.limits.max_offset;
    result["max_length"] = header.limits.max_length;
    result["top"] = header.top;
    result["reserved"] = header.reserved;
    result["rows"] = header.rows;
    result["entries"] = header.entries;
    result["kept"] = header.kept;
    result["max_source"] = header.max_source;
    result["cells"] = header.cells;
    result["slope"] = header.regression.slope;
    result["intercept"] = header.regression.intercept;
    result["tension"] = header.tension;
    result["backoff"] = header.backoff;
    result["file_bytes"] = header.file_bytes;
    result["vocabulary"] = bytes_of(header.vocabulary);
    result["links"] = bytes_of(header.links);
    return result;
}

Counts count(const std::string& path, const Array<std::int32_t>& source, const Array<std::int64_t>& source_starts,
             const Array<std::int32_t>& target, const Array<std::int64_t>& target_starts, const Array<std::int32_t>& links,
             const CountLimits& limits) {
    const LinkedPairs pairs{span_of(source), span_of(target), span_of(links), span_of(source_starts), span_of(target_starts)};
    CandidateRun run;
    {
        const nb::gil_scoped_release unlocked;
        run = count_candidates(pairs, limits);
        write_run(path, run);
    }
    return describe(run.totals);
}

Description merge(const std::vector<std::string>& runs, const std::string& path, std::uint32_t top, std::uint32_t reserved,
                  double tension, double backoff, const nb::bytes& vocabulary) {
    TableOptions options{.top = top, .reserved = reserved, .tension = tension, .backoff = backoff, .vocabulary = {}};
    if (vocabulary.size() != options.vocabulary.size()) throw std::invalid_argument("vocabulary: expected a digest of 32 bytes");
    std::copy_n(reinterpret_cast<const std::uint8_t*>(vocabulary.c_str()), vocabulary.size(), options.vocabulary.begin());
    TableHeader header;
    {
        const nb::gil_scoped_release unlocked;
        header = merge_candidates(runs, path, options);
    }
    return describe(header);
}

void require_piece(const CandidateTables& tables, std::uint32_t x) {
    if (x >= tables.header().limits.source_size) throw std::invalid_argument("source piece outside the vocabulary");
}

auto entries_of(const CandidateTables& tables, const CandidateTables::Row& row) {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> entries;
    for (std::uint32_t entry = row.first; entry < row.last; ++entry) entries.emplace_back(tables.piece(entry), tables.count(entry));
    return std::pair(std::move(entries), row.total);
}

constexpr std::int64_t MAX_POSITION = std::int64_t{1} << 31;  // of pieces in a sentence

auto row(const CandidateTables& tables, std::uint32_t x, std::int64_t offset) {
    require_piece(tables, x);
    require_range("offset", offset, -MAX_POSITION, MAX_POSITION);
    return entries_of(tables, tables.row(x, offset));
}

auto lexical_row(const CandidateTables& tables, std::uint32_t x) {
    require_piece(tables, x);
    if (!(tables.header().backoff > 0.0)) throw std::invalid_argument(tables.path() + ": expected tables with a backoff, got none");
    return entries_of(tables, tables.row(x));
}

auto prior(const CandidateTables& tables, std::int64_t source_length, std::int64_t slot) {
    require_range("slot", slot, std::int64_t{0}, MAX_POSITION);
    const CandidateTables::Cell cell = tables.prior(source_length, slot);
    std::vector<std::pair<std::int64_t, std::uint64_t>> result;
    for (std::size_t i = 0; i < cell.positions.size(); ++i) result.emplace_back(cell.positions[i], cell.counts[i]);
    return result;
}

void look_up(const CandidateTables& tables, const Array<std::int64_t, 2>& ids, const Array<std::int64_t>& lengths,
             const Array<std::int64_t>& slots, const Output<std::int64_t, 3>& token_ids, const Output<double, 3>& log_probs,
             double min_prior, int threads) {
    const auto fits = [&](const auto& output) {
        return output.shape(0) == lengths.size() && output.shape(1) == token_ids.shape(1);
    };
    if (ids.shape(0) != lengths.size() || slots.size() != lengths.size() || !fits(token_ids) || !fits(log_probs) ||
        log_probs.shape(2) != token_ids.shape(2)) {
        throw std::invalid_argument("expected arrays of one batch: ids [B, S], lengths and slots [B], results [B, N, K]");
    }
    require_finite("min_prior", min_prior);
    require_threads(threads);
    require_values("token_ids", token_ids);
    const SourcePieces sources{span_of(ids), span_of(lengths), span_of(slots), static_cast<std::int64_t>(ids.shape(1))};
    const LookupOptions options{static_cast<std::int64_t>(token_ids.shape(2)), min_prior, threads};
    const nb::gil_scoped_release unlocked;
    lattice_candidates(tables, sources, options, static_cast<std::int64_t>(token_ids.shape(1)), span_of(token_ids),
                       span_of(log_probs));
}

}  // namespace

void bind_candidates(nb::module_& module) {
    nb::class_<CountLimits>(module, "CountLimits")
        .def(
            "__init__",
            [](CountLimits* limits, std::uint32_t source_size, std::uint32_t target_size, std::uint32_t max_offset,
               std::uint32_t max_length) { new (limits) CountLimits{source_size, target_size, max_offset, max_length}; },
            "source_size"_a, "target_size"_a, "max_offset"_a, "max_length"_a);
    module.def("count_candidates", &count, "path"_a, "source"_a, "source_starts"_a, "target"_a, "target_starts"_a, "links"_a,
               "limits"_a);
    module.def("run_totals", [](const std::string& path) { return describe(RunFile(path).totals()); }, "path"_a);
    module.def("merge_candidates", &merge, "runs"_a, "path"_a, "top"_a, "reserved"_a, "tension"_a, "backoff"_a, "vocabulary"_a);
    nb::class_<CandidateTables>(module, "CandidateTables")
        .def(nb::init<const std::string&>(), "path"_a)
        .def("describe", [](const CandidateTables& tables) { return describe(tables.header()); })
        .def("verify", &CandidateTables::verify, nb::call_guard<nb::gil_scoped_release>())
        .def(
            "length",
            [](const CandidateTables& tables, std::int64_t source) {
                require_range("source_length", source, -MAX_POSITION, MAX_POSITION);
                return tables.header().regression.length(source);
            },
            "source_length"_a)
        .def(
            "length_range",
            [](const CandidateTables& tables, std::int64_t source, std::int64_t window) {
                require_range("source_length", source, -MAX_POSITION, MAX_POSITION);
                require_range("window", window, std::int64_t{0}, MAX_WINDOW);
                const LengthRegression::LengthRange range = tables.header().regression.length_range(source, window);
                return std::pair(range.min, range.max);
            },
            "source_length"_a, "window"_a)
        .def("row", &row, "piece"_a, "offset"_a)
        .def("lexical_row", &lexical_row, "piece"_a)
        .def("prior", &prior, "source_length"_a, "slot"_a)
        .def("look_up", &look_up, "ids"_a, "lengths"_a, "slots"_a, "token_ids"_a, "log_probs"_a, "min_prior"_a, "threads"_a);
}

}  // namespace fewstep
