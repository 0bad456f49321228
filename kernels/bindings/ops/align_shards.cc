#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "bindings/bindings.h"
#include "bindings/ops/align.h"
#include "csrc/ops/align/shards.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;
using Starts = Vector<std::uint64_t>;
using Columns = Vector<std::uint32_t>;
using Sizes = std::vector<std::tuple<std::uint32_t, std::uint32_t, std::int64_t>>;

void require_ascending(const Starts& starts) {
    const auto rows = view(starts);
    require(!rows.empty() && std::is_sorted(rows.begin(), rows.end()), "align: the starts of rows are not ascending");
}

CellsView cells(const Starts& starts, const Columns& columns) {
    require_ascending(starts);
    require(starts(0) == 0 && starts(starts.size() - 1) == columns.size(), "align: rows do not fit their cells");
    return {view(starts), view(columns)};
}

bool all_below(const Columns& columns, std::size_t limit) {
    return std::all_of(columns.data(), columns.data() + columns.size(), [&](std::uint32_t column) { return column < limit; });
}

RowRange range(const Starts& whole, const Starts& shard, const Columns& offsets) {
    require(whole.size() == shard.size() && whole.size() > 0, "align: ranges of unequal numbers of rows");
    require_ascending(whole);
    require_ascending(shard);
    require(shard(shard.size() - 1) - shard(0) == offsets.size(), "align: rows do not fit their cells");
    return {view(whole), view(shard), view(offsets)};
}

std::vector<SizeCount> counted(const Sizes& sizes) {
    constexpr std::uint32_t MAX_LENGTH = 1u << 20;  // each position is passed through
    std::vector<SizeCount> result;
    for (const auto& [m, n, count] : sizes) {
        require_range("sizes", m, 0u, MAX_LENGTH);
        require_range("sizes", n, 0u, MAX_LENGTH);
        result.push_back({m, n, count});
    }
    return result;
}

}  // namespace

void bind_align_shards(nb::module_& module) {
    module.def(
        "merge_cells",
        [](const std::vector<Starts>& starts, const std::vector<Columns>& columns) {
            require(starts.size() == columns.size(), "align: rows and columns of unequal numbers of shards");
            std::vector<CellsView> shards;
            for (std::size_t i = 0; i < starts.size(); ++i) {
                require(starts[i].size() == starts[0].size(), "align: shards of unequal numbers of rows");
                shards.push_back(cells(starts[i], columns[i]));
            }
            Support whole;
            {
                const nb::gil_scoped_release release;
                whole = merge_cells(shards);
            }
            return std::tuple(own(std::move(whole.row_starts)), own(std::move(whole.columns)));
        },
        "starts"_a, "columns"_a);
    module.def(
        "cell_offsets",
        [](const Starts& whole_starts, const Columns& whole, const Starts& shard_starts, const Columns& shard) {
            require(whole_starts.size() == shard_starts.size(),
                    "align: the shard and the merged cells have different numbers of rows");
            return own(cell_offsets(cells(whole_starts, whole), cells(shard_starts, shard)));
        },
        "whole_starts"_a, "whole"_a, "shard_starts"_a, "shard"_a);
    module.def(
        "add_counts",
        [](const Starts& whole_starts, const Starts& shard_starts, const Columns& offsets, const Starts& low, const Columns& high,
           MutableVector<std::uint64_t> whole_low, MutableVector<std::uint32_t> whole_high) {
            require(low.size() == offsets.size() && high.size() == offsets.size(), "align: counts do not fit their cells");
            const RowRange rows = range(whole_starts, shard_starts, offsets);
            require(whole_low.size() == whole_high.size() &&
                        whole_starts(whole_starts.size() - 1) - whole_starts(0) == whole_low.size(),
                    "align: counts do not fit the merged cells");
            rows.each([&](std::uint64_t cell, std::uint64_t at) {
                whole_low(at) += low(cell);
                whole_high(at) += high(cell) + (whole_low(at) < low(cell));
            });
        },
        "whole_starts"_a, "shard_starts"_a, "offsets"_a, "low"_a, "high"_a, "whole_low"_a, "whole_high"_a, Release());
    module.def(
        "maximise_rows",
        [](const Starts& starts, const Starts& low, const Columns& high, const AlignOptions& options, MutableVector<double> t,
           int threads) {
            require_threads(threads);
            require_ascending(starts);
            require(starts(starts.size() - 1) - starts(0) == t.size() && low.size() == t.size() && high.size() == t.size(),
                    "align: rows do not fit their cells");
            maximise(starts.data(), static_cast<std::int64_t>(starts.size()) - 1, low.data(), high.data(), options, t.data(),
                     threads);
        },
        "starts"_a, "low"_a, "high"_a, "options"_a, "t"_a, "threads"_a, Release());
    module.def(
        "model_feature",
        [](const Sizes& sizes, std::int64_t target_words, double tension, bool compatible, int threads) {
            require_threads(threads);
            require_tension(tension);
            return model_feature(counted(sizes), target_words, tension, compatible, threads);
        },
        "sizes"_a, "target_words"_a, "tension"_a, "compatible"_a, "threads"_a);
    module.def("step_tension", step_tension, "tension"_a, "posterior_feature"_a, "model_feature"_a);
    module.def("length_ratio", [](const Sizes& sizes) { return length_ratio(counted(sizes)); }, "sizes"_a);
    module.def(
        "aligner_cells",
        [](const BoundAligner& self) {
            const Support& support = self.aligner.text().support();
            return std::tuple(own(support.row_starts), own(support.columns));
        },
        "aligner"_a);
    module.def(
        "aligner_counts",
        [](const BoundAligner& self) { return std::tuple(own(self.aligner.counts().low), own(self.aligner.counts().high)); },
        "aligner"_a);
    module.def(
        "aligner_take_probabilities",
        [](BoundAligner& self, const Starts& whole_starts, const Columns& offsets, const Vector<double>& whole) {
            const Support& support = self.aligner.text().support();
            require_ascending(whole_starts);
            require(whole_starts.size() == support.row_starts.size() && offsets.size() == support.cells() && whole_starts(0) == 0 &&
                        whole_starts(whole_starts.size() - 1) == whole.size(),
                    "align: probabilities do not fit the cells");
            constexpr double MAX_PROBABILITY = 1.0 + 1e-6;  // they are rounded
            require(
                std::all_of(whole.data(), whole.data() + whole.size(), [](double t) { return t >= 0.0 && t <= MAX_PROBABILITY; }),
                "align: expected finite probabilities from 0 to 1");
            const RowRange rows{view(whole_starts), support.row_starts, view(offsets)};
            std::vector<double>& t = self.aligner.t();
            rows.each([&](std::uint64_t cell, std::uint64_t at) { t[cell] = whole(at); });
        },
        "aligner"_a, "whole_starts"_a, "offsets"_a, "whole"_a, Release());
    module.def(
        "model_of_cells",
        [](const Starts& starts, const Columns& columns, const Vector<double>& t, const AlignOptions& options, bool reverse,
           double tension, double length_ratio, nb::object words) {
            const CellsView whole = cells(starts, columns);
            require(t.size() == columns.size(), "align: probabilities do not fit the cells");
            const Dictionary& named = nb::cast<BoundBitext&>(words).text.words;
            require(named.size() == 0 || (starts.size() - 2 <= named.size() && all_below(columns, named.size())),
                    "align: rows and columns do not fit the words");
            const Support support{{whole.row_starts.begin(), whole.row_starts.end()}, {whole.columns.begin(), whole.columns.end()}};
            return std::make_shared<const AlignModel>(ModelHeader{options, reverse, tension, length_ratio}, support, t.data(),
                                                      named);
        },
        "starts"_a, "columns"_a, "t"_a, "options"_a, "reverse"_a, "tension"_a, "length_ratio"_a, "words"_a);
}

}  // namespace fewstep
