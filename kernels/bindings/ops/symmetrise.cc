#include "csrc/ops/align/symmetrise.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/base/parallel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

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
nb::tuple symmetrise_all(const Starts& target_starts, const Positions& forward, const Starts& source_starts,
                         const Positions& reverse, const std::string& method, int threads) {
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
    return nb::make_tuple(own(std::move(starts)), own(std::move(sources)), own(std::move(targets)));
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
