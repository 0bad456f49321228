#include "csrc/inference/stepwise/joint_step.h"

#include "bindings/inference/beam_options.h"
#include "bindings/bindings.h"
#include "bindings/inference/slot_candidates.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

nb::tuple choose_jointly(const OfferedWords::Table<float, 3>& scores, const OfferedWords::Table<std::int64_t, 3>& ids,
                         const OfferedWords::Table<float, 2>& ends, std::int64_t eos, double end, const NgramScorer* ngram, double ngram_weight,
                         const std::vector<bool>& leftward) {
    const OfferedWords given{scores, ids, ends};
    const std::size_t rows = given.rows(), slots = given.slots(), words = given.words();
    given.require_fit(rows, slots, ngram);
    require(words >= 1, "scores: expected a word for each slot");
    const JointStep step{neighbours_of(ngram, ngram_weight, leftward), end, words};
    std::vector<std::int64_t> chosen(rows * slots);
    std::vector<float> log_probs(rows * slots);
    {
        const nb::gil_scoped_release release;
        for (std::size_t row = 0, at = 0; row < rows; ++row, at += slots)
            step.choose(scores.data() + at * words, ids.data() + at * words, ends.data() + at, slots, eos, &log_probs[at], &chosen[at]);
    }
    return nb::make_tuple(own(std::move(chosen)), own(std::move(log_probs)));
}

}  // namespace

void bind_joint_step(nb::module_& module) {
    module.def("choose_jointly", choose_jointly, "scores"_a, "ids"_a, "ends"_a, nb::kw_only(), "eos"_a, "end"_a, "ngram"_a.none(),
               "ngram_weight"_a, "leftward"_a);
}

}  // namespace fewstep
