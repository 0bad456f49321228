#include "csrc/ops/align/bitext.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "bindings/ops/align.h"
#include "csrc/base/parallel.h"
#include "csrc/ops/align/symmetrise.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;
using Starts = Vector<std::int64_t>;

void check_starts(const Starts& starts, std::size_t size) {
    require(starts.size() > 0 && starts(0) >= 0, "align: sentence starts are missing");
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
        require(starts(i) <= starts(i + 1), "align: sentence starts are not ascending");
    require(starts(starts.size() - 1) <= static_cast<std::int64_t>(size), "align: sentence starts lie beyond the text");
}

void add_side(Sentences& sentences, const Starts& starts, const Vector<std::uint32_t>& ids, std::uint32_t limit) {
    check_starts(starts, ids.size());
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        for (auto at = static_cast<std::size_t>(starts(i)); at < static_cast<std::size_t>(starts(i + 1)); ++at) {
            require(ids(at) < limit, "align: word number " + std::to_string(ids(at)) + " is not below " + std::to_string(limit));
            sentences.words.push_back(ids(at));
        }
        sentences.end_sentence();
    }
}

// Words have numbers by the dictionary: those of other numbers lie outside of it.
void require_no_ids(const Bitext& text) {
    require(text.words.size() > 0 || (text.source.words.empty() && text.target.words.empty()),
            "align: words cannot be added to a text of numbers");
}

void add_words(BoundBitext& self, const std::vector<std::string>& source, const std::vector<std::string>& target) {
    Bitext& text = self.appendable();
    require_no_ids(text);
    for (const auto& word : source) text.source.words.push_back(text.words.add(word));
    for (const auto& word : target) text.target.words.push_back(text.words.add(word));
    text.source.end_sentence();
    text.target.end_sentence();
    text.measure();
}

void add_lines(BoundBitext& self, const Starts& source_starts, const Vector<std::uint8_t>& source, const Starts& target_starts,
               const Vector<std::uint8_t>& target) {
    Bitext& text = self.appendable();
    require_no_ids(text);
    require(source_starts.size() == target_starts.size(), "align: the sides have unequal numbers of sentences");
    check_starts(source_starts, source.size());
    check_starts(target_starts, target.size());
    const auto line = [](const Starts& starts, const Vector<std::uint8_t>& letters, std::size_t i) {
        return std::string_view(reinterpret_cast<const char*>(letters.data()) + starts(i),
                                static_cast<std::size_t>(starts(i + 1) - starts(i)));
    };
    for (std::size_t i = 0; i + 1 < source_starts.size(); ++i)
        text.add_pair(line(source_starts, source, i), line(target_starts, target, i));
    text.measure();
}

void add_ids(BoundBitext& self, const Starts& source_starts, const Vector<std::uint32_t>& source, const Starts& target_starts,
             const Vector<std::uint32_t>& target, std::uint32_t source_size, std::uint32_t target_size) {
    Bitext& text = self.appendable();
    require(text.words.size() == 0, "align: numbers cannot be added to a text of words");
    require(source_starts.size() == target_starts.size(), "align: the sides have unequal numbers of sentences");
    constexpr std::uint32_t MAX_SIZE = 1u << 24;  // a row takes memory for each
    require_range("source_size", source_size, text.source_size, MAX_SIZE);
    require_range("target_size", target_size, text.target_size, MAX_SIZE);
    check_starts(source_starts, source.size());
    check_starts(target_starts, target.size());
    add_side(text.source, source_starts, source, source_size);
    add_side(text.target, target_starts, target, target_size);
    text.source_size = source_size;
    text.target_size = target_size;
}

nb::bytes word(const BoundBitext& self, std::uint32_t id) {
    require(id < self.text.words.size(), "align: no word has the number " + std::to_string(id));
    const std::string_view word = self.text.words.word(id);
    return nb::bytes(word.data(), word.size());
}

auto ids(const BoundBitext& self, bool target) {
    const Sentences& side = target ? self.text.target : self.text.source;
    return std::tuple(own(std::vector<std::int64_t>(side.starts.begin(), side.starts.end())), own(side.words));
}

}  // namespace

void bind_bitext(nb::module_& module) {
    nb::class_<BoundBitext>(module, "Bitext")
        .def(nb::init<>())
        .def_static(
            "read", [](const std::string& path) { return BoundBitext{read_bitext(path.c_str())}; }, "path"_a, Release())
        .def("add_words", add_words, "source"_a, "target"_a)
        .def("add_lines", add_lines, "source_starts"_a, "source"_a, "target_starts"_a, "target"_a, Release())
        .def("add_ids", add_ids, "source_starts"_a, "source"_a, "target_starts"_a, "target"_a, "source_size"_a, "target_size"_a,
             Release())
        .def_prop_ro("pairs", [](const BoundBitext& self) { return self.text.source.size(); })
        .def_prop_ro("words", [](const BoundBitext& self) { return self.text.words.size(); })
        .def_prop_ro("carriage_returns", [](const BoundBitext& self) { return self.text.carriage_returns; })
        .def("word", word, "id"_a)
        .def("ids", ids, "target"_a);
}

namespace {

Symmetrisation method_of(const std::string& name) {
    if (name == "intersect") return Symmetrisation::INTERSECT;
    if (name == "union") return Symmetrisation::UNION;
    if (name == "grow-diag") return Symmetrisation::GROW_DIAG;
    if (name == "grow-diag-final") return Symmetrisation::GROW_DIAG_FINAL;
    if (name == "grow-diag-final-and") return Symmetrisation::GROW_DIAG_FINAL_AND;
    throw std::invalid_argument("symmetrize: no method is called " + name +
                                "; choose one of intersect, union, grow-diag, grow-diag-final, grow-diag-final-and");
}

using Starts = Vector<std::int64_t>;
using Positions = Vector<std::int32_t>;

void check(const Starts& starts, std::size_t size) {
    require(starts.size() > 0 && starts(0) == 0 && starts(starts.size() - 1) == static_cast<std::int64_t>(size),
            "symmetrize: starts do not fit the positions");
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) require(starts(i) <= starts(i + 1), "symmetrize: starts are not ascending");
}

// `forward`: the source position of each target word; `reverse`: the target position of each source word; -1 for no link.
auto symmetrise_all(const Starts& target_starts, const Positions& forward, const Starts& source_starts, const Positions& reverse,
                    const std::string& method, int threads) {
    const Symmetrisation chosen = method_of(method);
    require_threads(threads);
    require(target_starts.size() == source_starts.size(), "symmetrize: directions of unequal numbers of pairs");
    check(target_starts, forward.size());
    check(source_starts, reverse.size());
    const std::size_t pairs = target_starts.size() - 1;
    std::vector<std::vector<Link>> links(pairs);
    std::vector<std::int64_t> starts{0};
    std::vector<std::uint32_t> sources, targets;
    {
        const nb::gil_scoped_release release;
        parallel_for(static_cast<std::int64_t>(pairs), threads, [&](std::int64_t index, int) {
            const auto pair = static_cast<std::size_t>(index);
            const auto sources = source_starts(pair + 1) - source_starts(pair),
                       words = target_starts(pair + 1) - target_starts(pair);
            const auto within = [&](std::int32_t position, std::int64_t size) {
                if (position >= size)
                    throw std::invalid_argument("symmetrize: pair " + std::to_string(pair) + ": a link leads to position " +
                                                std::to_string(position) + " of " + std::to_string(size) + " words");
                return position >= 0;
            };
            std::vector<Link> one, other;
            for (auto at = target_starts(pair); at < target_starts(pair + 1); ++at)
                if (const auto source = forward(static_cast<std::size_t>(at)); within(source, sources))
                    one.emplace_back(static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(at - target_starts(pair)));
            for (auto at = source_starts(pair); at < source_starts(pair + 1); ++at)
                if (const auto target = reverse(static_cast<std::size_t>(at)); within(target, words))
                    other.emplace_back(static_cast<std::uint32_t>(at - source_starts(pair)), static_cast<std::uint32_t>(target));
            links[pair] = symmetrise(std::move(one), std::move(other), chosen);
        });
        for (const auto& of_pair : links) {
            for (const auto& [source, target] : of_pair) {
                sources.push_back(source);
                targets.push_back(target);
            }
            starts.push_back(static_cast<std::int64_t>(sources.size()));
        }
    }
    return std::tuple(own(std::move(starts)), own(std::move(sources)), own(std::move(targets)));
}

}  // namespace

void bind_symmetrise(nb::module_& module) {
    module.def(
        "symmetrise",
        [](std::vector<Link> forward, std::vector<Link> reverse, const std::string& method) {
            return symmetrise(std::move(forward), std::move(reverse), method_of(method));
        },
        "forward"_a, "reverse"_a, "method"_a);
    module.def("symmetrise_all", symmetrise_all, "target_starts"_a, "forward"_a, "source_starts"_a, "reverse"_a, "method"_a,
               "threads"_a);
}

}  // namespace fewstep
