#include "csrc/stepwise/beam.h"

#include "bindings/arrays.h"
#include "bindings/beam_options.h"
#include "bindings/bindings.h"
#include "csrc/ngram/model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Words = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const std::int64_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

struct BoundBeam {
    BeamOptions options;
    Beam beam;

    nb::tuple advance(const Words& scores, const Ids& ids, const Ends& eos) {
        const std::size_t rows = beam.rows();
        const auto slots = static_cast<std::size_t>(options.rules.step_size);
        require(scores.shape(0) == rows && scores.shape(1) == slots,
                "scores: expected [R,z,W] with R " + std::to_string(rows) + " and z " + std::to_string(slots));
        require(eos.shape(0) == rows && eos.shape(1) == slots, "eos: expected [R,z]");
        for (std::size_t i = 0; i < 3; ++i) require(scores.shape(i) == ids.shape(i), "ids: expected the shape of scores");
        Advance next;
        {
            const nb::gil_scoped_release release;
            next = beam.advance({scores.data(), ids.data(), eos.data(), static_cast<int>(scores.shape(2))});
        }
        return nb::make_tuple(own(std::move(next.going)), own(std::move(next.counts)), own(std::move(next.rows)), own(std::move(next.tokens)));
    }

    nb::list outcomes() const { return as_list(beam.outcomes()); }
};

BoundBeam make(std::vector<std::int64_t> limits, int beams, int step_size, bool per_direction, const std::string& selection,
               std::int64_t eos, std::int64_t pad, int n_best, double alpha, bool gnmt, double prune, const NgramScorer* ngram, double ngram_weight,
               const std::vector<bool>& leftward) {
    const BeamOptions options =
        beam_options(beams, step_size, per_direction, selection, eos, pad, n_best, alpha, gnmt, prune, neighbours_of(ngram, ngram_weight, leftward));
    require_limits(limits);
    return {options, Beam(options, limits)};
}

}  // namespace

void bind_beam(nb::module_& module) {
    nb::class_<BoundBeam>(module, "Beam").def("advance", &BoundBeam::advance, "scores"_a, "ids"_a, "eos"_a).def("outcomes", &BoundBeam::outcomes);
    module.def("make_beam", make, "limits"_a, nb::kw_only(), "beams"_a, "step_size"_a, "per_direction"_a, "selection"_a, "eos"_a, "pad"_a,
               "n_best"_a, "alpha"_a, "gnmt"_a, "prune"_a, "ngram"_a.none(), "ngram_weight"_a, "leftward"_a);
}

}  // namespace fewstep
