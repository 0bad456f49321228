#include "csrc/inference/stepwise/joint_step.h"

#include "bindings/bindings.h"
#include "bindings/inference/beam_options.h"
#include "bindings/inference/slot_candidates.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

nb::tuple choose_jointly(const CandidateTable::Table<float, 3>& scores, const CandidateTable::Table<std::int64_t, 3>& ids,
                         const CandidateTable::Table<float, 2>& ends, std::int64_t eos, double end_threshold,
                         const NgramScorer* ngram, double ngram_weight, const std::vector<bool>& right_to_left) {
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
    return nb::make_tuple(own(std::move(chosen)), own(std::move(log_probs)));
}

}  // namespace

void bind_joint_step(nb::module_& module) {
    module.def("choose_jointly", choose_jointly, "scores"_a, "ids"_a, "ends"_a, nb::kw_only(), "eos"_a, "end_threshold"_a,
               "ngram"_a.none(), "ngram_weight"_a, "right_to_left"_a);
}

}  // namespace fewstep
