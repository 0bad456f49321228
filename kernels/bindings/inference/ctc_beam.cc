// Prefix beam search over CTC slots.
#include "csrc/inference/parallel/ctc_beam.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/base/parallel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Scores = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require_arrays(const Cube<float>& scores, const Cube<std::int64_t>& token_ids, const Scores& blanks,
                    const Vector<std::int64_t>& lengths) {
    bool same = lengths.size() == scores.shape(0);
    for (std::size_t axis = 0; axis < 3; ++axis) same = same && scores.shape(axis) == token_ids.shape(axis);
    for (std::size_t axis = 0; axis < 2; ++axis) same = same && scores.shape(axis) == blanks.shape(axis);
    require(same, "ctc_beam: expected scores and token_ids [B,T,C], blanks [B,T] and lengths [B] of the same sizes");
    for (const std::int64_t length : view(lengths)) {
        require(length >= 0 && length <= static_cast<std::int64_t>(blanks.shape(1)),
                "lengths: expected 0 to " + std::to_string(blanks.shape(1)) + " slots, got " + std::to_string(length));
    }
}

nb::list ctc_beam(const Cube<float>& scores, const Cube<std::int64_t>& token_ids, const Scores& blanks,
                  const Vector<std::int64_t>& lengths, std::int64_t beam_size, double ngram_weight, double token_bonus,
                  double length_penalty, std::int64_t n_best, const NgramScorer* ngram, int threads) {
    require_arrays(scores, token_ids, blanks, lengths);
    require_at_least("beam_size", beam_size, std::int64_t{1});
    require_at_least("n_best", n_best, std::int64_t{1});
    for (const auto& [name, value] :
         {std::pair{"ngram_weight", ngram_weight}, {"token_bonus", token_bonus}, {"length_penalty", length_penalty}})
        require_finite(name, value);
    require_threads(threads);
    require_values("scores", scores);
    const CtcBeamOptions options{beam_size, ngram_weight, token_bonus, length_penalty, n_best};
    const std::int64_t vocabulary = ngram ? static_cast<std::int64_t>(ngram->size()) : std::numeric_limits<std::int32_t>::max();
    const std::size_t slots = scores.shape(1), width = scores.shape(2);
    std::vector<std::vector<CtcHypothesis>> found(lengths.size());
    {
        const nb::gil_scoped_release release;
        const auto count = static_cast<std::int64_t>(found.size());
        std::vector<CtcBeam> searches(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 1, threads)), CtcBeam(options));
        parallel_for(count, threads, [&](std::int64_t sentence, int thread) {
            const auto at = static_cast<std::size_t>(sentence);
            const CtcSlots slots_of_sentence{scores.data() + at * slots * width, token_ids.data() + at * slots * width,
                                             blanks.data() + at * slots,         lengths.data()[at],
                                             static_cast<std::int64_t>(width),   vocabulary};
            found[at] = searches[static_cast<std::size_t>(thread)].search(slots_of_sentence, ngram);
        });
    }
    nb::list all;
    for (const auto& sentence : found) {
        nb::list best;
        for (const CtcHypothesis& hypothesis : sentence) best.append(nb::make_tuple(hypothesis.ids, hypothesis.score));
        all.append(best);
    }
    return all;
}

}  // namespace

void bind_ctc_beam(nb::module_& module) {
    module.def("ctc_beam", &ctc_beam, "scores"_a, "token_ids"_a, "blanks"_a, "lengths"_a, nb::kw_only(), "beam_size"_a,
               "ngram_weight"_a, "token_bonus"_a, "length_penalty"_a, "n_best"_a, "ngram"_a.none(), "threads"_a);
}

}  // namespace fewstep
