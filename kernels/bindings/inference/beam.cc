#include "csrc/inference/stepwise/beam.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/beam_options.h"
#include "csrc/inference/ngram/model.h"
#include "csrc/inference/stepwise/joint_step.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

struct CandidateTable {
    template <typename T, int D>
    using Table = Given<const T, nanobind::ndim<D>, nanobind::c_contig, nanobind::device::cpu>;

    const Table<float, 3>& scores;      // [R,z,W] log-probabilities
    const Table<std::int64_t, 3>& ids;  // [R,z,W]
    const Table<float, 2>& ends;        // [R,z] log-probabilities of EOS

    std::size_t rows() const { return ends.shape(0); }
    std::size_t slots() const { return ends.shape(1); }
    std::size_t num_candidates() const { return scores.shape(2); }

    // Throws std::invalid_argument for other shapes and for tokens that the n-gram model (may be null) does not have.
    void require_fit(std::size_t rows, std::size_t slots, const NgramScorer* ngram) const {
        require(scores.shape(0) == rows && scores.shape(1) == slots,
                "scores: expected [R,z,W] with R " + std::to_string(rows) + " and z " + std::to_string(slots));
        require(ends.shape(0) == rows && ends.shape(1) == slots, "eos: expected [R,z]");
        for (std::size_t i = 0; i < 3; ++i) require(scores.shape(i) == ids.shape(i), "ids: expected the shape of scores");
        if (ngram == nullptr) return;
        for (std::size_t i = 0; i < ids.size(); ++i)
            require(static_cast<std::uint64_t>(ids.data()[i]) < ngram->size(),
                    "ngram: expected a model over the network's vocabulary");
    }
};

namespace {

struct BoundBeam {
    BeamOptions options;
    Beam beam;

    auto advance(const CandidateTable::Table<float, 3>& scores, const CandidateTable::Table<std::int64_t, 3>& ids,
                 const CandidateTable::Table<float, 2>& eos) {
        const CandidateTable candidates{scores, ids, eos};
        candidates.require_fit(beam.rows(), static_cast<std::size_t>(options.rules.step_size), options.rules.coupling.ngram);
        Advance next;
        {
            const nb::gil_scoped_release release;
            next = beam.advance({scores.data(), ids.data(), eos.data(), static_cast<int>(candidates.num_candidates())});
        }
        return std::tuple(own(std::move(next.active)), own(std::move(next.counts)), own(std::move(next.rows)),
                          own(std::move(next.tokens)));
    }

    auto outcomes() const { return as_tuples(beam.outcomes()); }
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

namespace {

auto choose_jointly(const CandidateTable::Table<float, 3>& scores, const CandidateTable::Table<std::int64_t, 3>& ids,
                    const CandidateTable::Table<float, 2>& ends, std::int64_t eos, double end_threshold, const NgramScorer* ngram,
                    double ngram_weight, const std::vector<bool>& right_to_left) {
    const CandidateTable candidates{scores, ids, ends};
    const std::size_t rows = candidates.rows(), slots = candidates.slots(), num_candidates = candidates.num_candidates();
    require_values("scores", scores);
    require_values("ends", ends);
    candidates.require_fit(rows, slots, ngram);
    require_finite("end_threshold", end_threshold);
    require(num_candidates >= 1, "scores: expected at least one candidate for each slot");
    const JointStep step{coupling_of(ngram, ngram_weight, right_to_left), end_threshold, num_candidates};
    std::vector<std::int64_t> chosen(rows * slots);
    std::vector<float> log_probs(rows * slots);
    {
        const nb::gil_scoped_release release;
        for (std::size_t row = 0, at = 0; row < rows; ++row, at += slots)
            step.choose(scores.data() + at * num_candidates, ids.data() + at * num_candidates, ends.data() + at, slots, eos,
                        &log_probs[at], &chosen[at]);
    }
    return std::tuple(own(std::move(chosen)), own(std::move(log_probs)));
}

}  // namespace

void bind_joint_step(nb::module_& module) {
    module.def("choose_jointly", choose_jointly, "scores"_a, "ids"_a, "ends"_a, nb::kw_only(), "eos"_a, "end_threshold"_a,
               "ngram"_a.none(), "ngram_weight"_a, "right_to_left"_a);
}

}  // namespace fewstep
