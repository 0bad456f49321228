#include "csrc/ops/training/token_scores.h"

#include <nanobind/stl/optional.h>

#include <optional>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <typename Logit>
using Logits = nb::ndarray<Logit, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Targets = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Best = nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename Logit, typename Score>
TokenRows rows_of(const Logits<Logit>& logits, const Targets& targets, const Vector<std::int64_t>& rows,
                  const MutableCube<Score>& scores, std::size_t normalisers, double smoothing, int threads) {
    const std::size_t vertices = scores.shape(2);
    require(scores.shape(0) == targets.shape(0) && scores.shape(1) == targets.shape(1),
            "targets: expected [B,M] as in scores [B,M,L]");
    require(rows.size() == logits.shape(0) && normalisers == rows.size(), "rows, normalisers: expected one for each row of logits");
    require_threads(threads);
    require_finite("smoothing", smoothing);
    require_values("logits", logits);
    require_values("targets", targets);
    require_values("scores", scores);
    require(rows.size() == 0 || logits.shape(1) > 0, "logits: expected at least one token");
    const auto num_rows = static_cast<std::int64_t>(targets.shape(0) * vertices),
               vocabulary = static_cast<std::int64_t>(logits.shape(1));
    for (const std::int64_t row : view(rows))
        require(row >= 0 && row < num_rows, "rows: expected 0 to " + std::to_string(num_rows - 1) + ", got " + std::to_string(row));
    for (std::size_t index = 0; index < targets.size(); ++index) {
        const std::int64_t token = targets.data()[index];
        require(token >= 0 && token < vocabulary,
                "targets: expected ids below " + std::to_string(vocabulary) + ", got " + std::to_string(token));
    }
    return {rows.data(), rows.size(), targets.data(), targets.shape(1), vertices, logits.shape(1), static_cast<float>(smoothing)};
}

template <typename Logit>
void scores_of(const Logits<Logit>& logits, const Targets& targets, const Vector<std::int64_t>& rows,
               const MutableCube<float>& scores, const MutableVector<float>& normalisers, const std::optional<Best>& best,
               double smoothing, int threads) {
    const TokenRows batch = rows_of(logits, targets, rows, scores, normalisers.size(), smoothing, threads);
    require(!best || (best->shape(0) == scores.shape(0) && best->shape(1) == scores.shape(2)), "best: expected [B,L] as in scores");
    const nb::gil_scoped_release release;
    token_scores<Logit>(batch, logits.data(), scores.data(), normalisers.data(), best ? best->data() : nullptr, threads);
}

template <typename Logit>
void gradients_of(const Logits<Logit>& logits, const Targets& targets, const Vector<std::int64_t>& rows,
                  const Cube<float>& upstream, const Vector<float>& normalisers, double smoothing, double penalty, int threads) {
    require_finite("penalty", penalty);
    const TokenRows batch = rows_of(logits, targets, rows, upstream, normalisers.size(), smoothing, threads);
    const nb::gil_scoped_release release;
    token_gradients<Logit>(batch, logits.data(), normalisers.data(), upstream.data(), static_cast<float>(penalty), threads);
}

template <typename Logit>
void bind(nb::module_& module) {
    module.def("token_scores", scores_of<Logit>, nb::arg("logits").noconvert(), "targets"_a, "rows"_a,
               nb::arg("scores").noconvert(), nb::arg("normalisers").noconvert(), nb::arg("best").noconvert().none(), nb::kw_only(),
               "smoothing"_a, "threads"_a);
    module.def("token_gradients", gradients_of<Logit>, nb::arg("logits").noconvert(), "targets"_a, "rows"_a, "upstream"_a,
               "normalisers"_a, nb::kw_only(), "smoothing"_a, "penalty"_a, "threads"_a);
}

}  // namespace

void bind_token_scores(nb::module_& module) {
    bind<float>(module);
    bind<std::uint16_t>(module);
}

}  // namespace fewstep
