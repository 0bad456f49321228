#include "csrc/inference/stepwise/beam.h"

#include "bindings/bindings.h"
#include "bindings/inference/beam_options.h"
#include "bindings/inference/slot_candidates.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

struct BoundBeam {
    BeamOptions options;
    Beam beam;

    nb::tuple advance(const CandidateTable::Table<float, 3>& scores, const CandidateTable::Table<std::int64_t, 3>& ids,
                      const CandidateTable::Table<float, 2>& eos) {
        const CandidateTable candidates{scores, ids, eos};
        candidates.require_fit(beam.rows(), static_cast<std::size_t>(options.rules.step_size), options.rules.coupling.ngram);
        Advance next;
        {
            const nb::gil_scoped_release release;
            next = beam.advance({scores.data(), ids.data(), eos.data(), static_cast<int>(candidates.num_candidates())});
        }
        return nb::make_tuple(own(std::move(next.active)), own(std::move(next.counts)), own(std::move(next.rows)),
                              own(std::move(next.tokens)));
    }

    nb::list outcomes() const { return as_list(beam.outcomes()); }
};

BoundBeam make(std::vector<std::int64_t> limits, int beams, int step_size, bool per_direction, const std::string& selection,
               std::int64_t eos, std::int64_t pad, int n_best, double alpha, bool gnmt, double beam_threshold,
               const NgramScorer* ngram, double ngram_weight, const std::vector<bool>& right_to_left) {
    const BeamOptions options = beam_options(beams, step_size, per_direction, selection, eos, pad, n_best, alpha, gnmt,
                                             beam_threshold, coupling_of(ngram, ngram_weight, right_to_left));
    require_limits(limits);
    return {options, Beam(options, limits)};
}

constexpr std::size_t NGRAM_ARGUMENT = 12;  // of `make`, counted from 1; the search keeps a pointer to the scorer

}  // namespace

void bind_beam(nb::module_& module) {
    nb::class_<BoundBeam>(module, "Beam")
        .def("advance", &BoundBeam::advance, "scores"_a, "ids"_a, "eos"_a)
        .def("outcomes", &BoundBeam::outcomes);
    module.def("make_beam", make, "limits"_a, nb::kw_only(), "beams"_a, "step_size"_a, "per_direction"_a, "selection"_a, "eos"_a,
               "pad"_a, "n_best"_a, "alpha"_a, "gnmt"_a, "beam_threshold"_a, "ngram"_a.none(), "ngram_weight"_a, "right_to_left"_a,
               nb::keep_alive<0, NGRAM_ARGUMENT>());
}

}  // namespace fewstep
