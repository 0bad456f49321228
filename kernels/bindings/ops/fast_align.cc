#include "csrc/ops/align/fast_align.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdio>

#include "bindings/bindings.h"
#include "bindings/ops/align.h"
#include "csrc/ops/align/diagonal.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;

struct BoundLinks {
    DirectedBitext text;
    FoundLinks found;

    std::span<const std::int32_t> of(std::int64_t pair) const {
        require(0 <= pair && pair < text.target().size(), "align: no pair has the number " + std::to_string(pair));
        const auto start = text.target().starts[static_cast<std::size_t>(pair)];
        return std::span(found.sources).subspan(start, text.target()[pair].size());
    }
};

auto pairs(const BoundLinks& self, std::int64_t pair) {
    std::vector<std::pair<std::size_t, std::size_t>> result;
    const auto sources = self.of(pair);
    for (std::size_t j = 0; j < sources.size(); ++j) {
        if (sources[j] < 0) continue;
        const auto source = static_cast<std::size_t>(sources[j]);
        result.push_back(self.text.reverse ? std::pair(j, source) : std::pair(source, j));
    }
    return result;
}

// Append `source words ||| target words ||| links`; without `words` only the links.
void append_line(std::string& line, const BoundLinks& self, std::int64_t pair, bool words) {
    const Bitext& text = *self.text.bitext;
    if (words) {
        for (const std::uint32_t word : text.source[pair]) (line += text.words.word(word)) += ' ';
        line += "|||";
        for (const std::uint32_t word : text.target[pair]) (line += ' ') += text.words.word(word);
        line += " ||| ";
    }
    const std::size_t before = line.size();
    append_links(line, self.of(pair), self.text.reverse);
    if (words && line.size() == before) line.pop_back();
}

nb::bytes format(const BoundLinks& self, std::int64_t first, std::int64_t last, bool words, bool scores) {
    require(0 <= first && first <= last && last <= self.text.target().size(), "align: no such pairs");
    require(!words || self.text.bitext->words.size() > 0 || first == last, "align: a text of numbers has no words");
    std::string lines;
    for (std::int64_t pair = first; pair < last; ++pair) {
        append_line(lines, self, pair, words);
        char score[40];
        if (scores)
            lines.append(score, static_cast<std::size_t>(std::snprintf(score, sizeof score, " ||| %g",
                                                                       self.found.scores[static_cast<std::size_t>(pair)])));
        lines += '\n';
    }
    return nb::bytes(lines.data(), lines.size());
}

BoundLinks align(const BoundAligner& self, bool margins, int threads) {
    require_threads(threads);
    BoundLinks links{self.text, {}};
    const nb::gil_scoped_release release;
    links.found = self.aligner.align(margins, threads);
    return links;
}

BoundLinks force(const AlignModel& model, nb::object bitext, int threads) {
    require_threads(threads);
    BoundLinks links{DirectedBitext(std::move(bitext), model.header().reverse), {}};
    const nb::gil_scoped_release release;
    links.found = align_with(model, links.text.source(), links.text.target(), links.text.bitext->words, threads);
    return links;
}

auto expect(BoundAligner& self, int threads) {
    require_threads(threads);
    PassSums sums;
    {
        const nb::gil_scoped_release release;
        sums = self.aligner.expect(threads);
    }
    return std::tuple(halves(sums.log_likelihood), halves(sums.null_posterior), halves(sums.feature));
}

std::shared_ptr<const AlignModel> model_of(const BoundAligner& self) {
    const AlignedText& text = self.aligner.text();
    require(text.support().columns.size() == text.support().cells(), "align: the columns of the cells were not kept");
    const ModelHeader header{text.options(), self.text.reverse, self.aligner.tension, length_ratio(text.sizes())};
    return std::make_shared<const AlignModel>(header, text.support(), self.aligner.t().data(), self.text.bitext->words);
}

double probability_of(const AlignModel& model, nb::object source, const std::string& target) {
    const std::uint64_t row = source.is_none() ? 0 : std::uint64_t{model.words().find(nb::cast<std::string>(source))} + 1;
    return model.probability(row, model.words().find(target));
}

// Return the columns and probabilities of a row; empty for an unknown row.
auto row_of(const AlignModel& model, std::uint64_t row) {
    std::vector<std::uint32_t> columns;
    std::vector<double> t;
    if (row < static_cast<std::uint64_t>(model.rows())) {
        const auto first = model.row_starts()[row], count = model.row_starts()[row + 1] - first;
        const auto cells = model.columns().subspan(first, count);
        const auto values = model.t().subspan(first, count);
        columns.assign(cells.begin(), cells.end()), t.assign(values.begin(), values.end());
    }
    return std::tuple(own(std::move(columns)), own(std::move(t)));
}

AlignOptions make_options(bool diagonal, bool variational_bayes, bool null_word, bool compatible, double p0, double alpha,
                          std::int64_t max_length) {
    require(p0 >= 0.0 && p0 < 1.0, "p0: expected a probability from 0 to below 1" + got(p0));
    require_at_least("alpha", alpha, 0.0);
    require_finite("alpha", alpha);
    require_at_least("max_length", max_length, std::int64_t{1});
    return {diagonal, variational_bayes, null_word, compatible, p0, alpha, max_length};
}

// The products of positions and lengths are numbers of 32 bits.
void require_place(std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension) {
    constexpr std::uint32_t MAX_LENGTH = (1u << 16) - 1;
    require_range("j", j, 0u, MAX_LENGTH);
    require_range("m", m, 1u, MAX_LENGTH);
    require_range("n", n, 1u, MAX_LENGTH);
    require_tension(tension);
}

void bind_options(nb::module_& module) {
    nb::class_<AlignOptions>(module, "AlignOptions")
        .def_ro("diagonal", &AlignOptions::diagonal)
        .def_ro("variational_bayes", &AlignOptions::variational_bayes)
        .def_ro("null_word", &AlignOptions::null_word)
        .def_ro("compatible", &AlignOptions::compatible)
        .def_ro("p0", &AlignOptions::p0)
        .def_ro("alpha", &AlignOptions::alpha)
        .def_ro("max_length", &AlignOptions::max_length);
    module.def("align_options", make_options, nb::kw_only(), "diagonal"_a, "variational_bayes"_a, "null_word"_a, "compatible"_a,
               "p0"_a, "alpha"_a, "max_length"_a);
}

void bind_aligner(nb::module_& module) {
    nb::class_<BoundLinks>(module, "AlignedLinks")
        .def("pairs", pairs, "pair"_a)
        .def("format", format, "first"_a, "last"_a, nb::kw_only(), "words"_a = false, "scores"_a = false)
        .def("sources", [](const BoundLinks& self) { return own(self.found.sources); })
        .def("margins", [](const BoundLinks& self) { return own(self.found.margins); })
        .def(
            "score", [](const BoundLinks& self, std::size_t pair) { return self.found.scores.at(pair); }, "pair"_a)
        .def_prop_ro("near_ties", [](const BoundLinks& self) { return self.found.sums.near_ties; })
        .def_prop_ro("log_likelihood", [](const BoundLinks& self) { return halves(self.found.sums.log_likelihood); });
    nb::class_<BoundAligner>(module, "Aligner")
        .def(nb::init<nb::object, bool, const AlignOptions&, double, bool, int>(), "bitext"_a, "reverse"_a, "options"_a,
             "tension"_a, nb::kw_only(), "keep_columns"_a, "threads"_a)
        .def_prop_rw(
            "tension", [](const BoundAligner& self) { return self.aligner.tension; },
            [](BoundAligner& self, double tension) {
                require_tension(tension);
                self.aligner.tension = tension;
            })
        .def_prop_ro("target_words", [](const BoundAligner& self) { return self.aligner.text().target_words(); })
        .def_prop_ro("empty", [](const BoundAligner& self) { return self.aligner.text().usable().empty; })
        .def_prop_ro("long", [](const BoundAligner& self) { return self.aligner.text().usable().too_long; })
        .def_prop_ro("cells", [](const BoundAligner& self) { return self.aligner.text().support().cells(); })
        .def("sizes",
             [](const BoundAligner& self) {
                 return mapped(self.aligner.text().sizes(),
                               [](const SizeCount& size) { return std::tuple(size.m, size.n, size.count); });
             })
        .def("expect", expect, "threads"_a)
        .def(
            "maximise",
            [](BoundAligner& self, int threads) {
                require_threads(threads);
                self.aligner.maximise(threads);
            },
            "threads"_a, Release())
        .def("align", align, nb::kw_only(), "margins"_a, "threads"_a)
        .def("model", model_of, Release());
}

void bind_model(nb::module_& module) {
    nb::class_<AlignModel>(module, "AlignModel")
        .def_static(
            "load", [](const std::string& path) { return AlignModel::load(path.c_str()); }, "path"_a, Release())
        .def_static(
            "read_text",
            [](const std::string& path, const AlignOptions& options, bool reverse, double tension, double length_ratio) {
                return AlignModel::read_text(path.c_str(), {options, reverse, tension, length_ratio});
            },
            "path"_a, "options"_a, "reverse"_a, "tension"_a, "length_ratio"_a, Release())
        .def(
            "save", [](const AlignModel& self, const std::string& path) { self.save(path.c_str()); }, "path"_a, Release())
        .def(
            "write_text", [](const AlignModel& self, const std::string& path, double beam) { self.write_text(path.c_str(), beam); },
            "path"_a, "beam"_a, Release())
        .def("align", force, "bitext"_a, "threads"_a)
        .def("probability", probability_of, "source"_a.none(), "target"_a)
        .def("cell", &AlignModel::probability, "row"_a, "column"_a)
        .def("row", row_of, "row"_a)
        .def_prop_ro("options", [](const AlignModel& self) { return self.header().options; })
        .def_prop_ro("reverse", [](const AlignModel& self) { return self.header().reverse; })
        .def_prop_ro("tension", [](const AlignModel& self) { return self.header().tension; })
        .def_prop_ro("length_ratio", [](const AlignModel& self) { return self.header().length_ratio; })
        .def_prop_ro("cells", &AlignModel::cells);
}

}  // namespace

void bind_fast_align(nb::module_& module) {
    bind_options(module);
    bind_aligner(module);
    bind_model(module);
    module.def(
        "diagonal_partition",
        [](std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension) {
            require_place(j, m, n, tension);
            return diagonal_partition(j, m, n, tension);
        },
        "j"_a, "m"_a, "n"_a, "tension"_a);
    module.def(
        "diagonal_gradient",
        [](std::uint32_t j, std::uint32_t m, std::uint32_t n, double tension, bool compatible) {
            require_place(j, m, n, tension);
            return diagonal_gradient(j, m, n, tension, compatible);
        },
        "j"_a, "m"_a, "n"_a, "tension"_a, "compatible"_a);
    module.def("digamma", digamma, "x"_a);
}

}  // namespace fewstep
