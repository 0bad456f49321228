#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/ops/training/dropout.h"
#include "csrc/ops/training/fused_attention.h"
#include "csrc/ops/training/token_scores.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

Dropout dropout_of(double probability, std::uint64_t seed) {
    const auto rounded = static_cast<float>(probability);
    require(rounded >= 0.0F && rounded < 1.0F,
            "dropout: expected a probability from 0 to below 1, got " + std::to_string(probability));
    return {rounded, seed};
}

template <typename Value>
using Values = Given<Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
void drop(const Values<const Value>& x, const Values<Value>& dropped, double probability, std::uint64_t seed, int threads) {
    require(dropped.size() == x.size(),
            "dropped: expected " + std::to_string(x.size()) + " values, got " + std::to_string(dropped.size()));
    require_threads(threads);
    const Dropout options = dropout_of(probability, seed);
    const nb::gil_scoped_release release;
    dropout<Value>(options, x.data(), dropped.data(), x.size(), threads);
}

template <typename Value>
void def_dropout(nb::module_& module) {
    module.def("dropout", drop<Value>, nb::arg("x").noconvert(), nb::arg("dropped").noconvert(), nb::kw_only(), "probability"_a,
               "seed"_a, "threads"_a);
}

}  // namespace

void bind_dropout(nb::module_& module) {
    def_dropout<float>(module);
    def_dropout<std::uint16_t>(module);
}

namespace {

template <typename Value>
using Rows = Given<Value, nb::ndim<4>, nb::device::cpu>;
template <typename Value>
using Normalisers = Given<Value, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using KeyMask = Given<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename Value>
HeadRows<Value> rows_of(const char* name, const Rows<Value>& rows, const AttentionShape& shape, std::size_t count) {
    const std::size_t expected[] = {shape.sentences, shape.heads, count, shape.size};
    for (std::size_t axis = 0; axis < 4; ++axis)
        require(rows.shape(axis) == expected[axis], std::string(name) + ": expected " + std::to_string(expected[axis]) +
                                                        " in dimension " + std::to_string(axis) + ", got " +
                                                        std::to_string(rows.shape(axis)));
    require(shape.size <= 1 || rows.stride(3) == 1, std::string(name) + ": expected the values of a row side by side");
    return {rows.data(), rows.stride(0), rows.stride(1), rows.stride(2)};
}

template <typename Value>
AttentionShape shape_of(const Rows<const Value>& queries, const Rows<const Value>& keys, const std::optional<KeyMask>& visible,
                        std::size_t normalisers, bool causal, const Dropout& dropout, int threads) {
    const AttentionShape shape{queries.shape(0), queries.shape(1), queries.shape(2),
                               keys.shape(2),    queries.shape(3), visible ? visible->data() : nullptr,
                               causal,           dropout};
    require(!visible || (visible->shape(0) == shape.sentences && visible->shape(1) == shape.keys), "seen: expected [B,S]");
    require(normalisers == shape.sentences * shape.heads * shape.queries, "normalisers: expected [B,H,T]");
    require_threads(threads);
    require_values("queries", queries);
    require_values("keys", keys);
    return shape;
}

template <typename Value>
void attention(const Rows<const Value>& queries, const Rows<const Value>& keys, const Rows<const Value>& values,
               const std::optional<KeyMask>& visible, const Rows<Value>& outputs, const Normalisers<float>& normalisers,
               bool causal, double probability, std::uint64_t seed, int threads) {
    const AttentionShape shape =
        shape_of<Value>(queries, keys, visible, normalisers.size(), causal, dropout_of(probability, seed), threads);
    const auto query_rows = rows_of("queries", queries, shape, shape.queries), key_rows = rows_of("keys", keys, shape, shape.keys),
               value_rows = rows_of("values", values, shape, shape.keys);
    const auto target = rows_of("mixed", outputs, shape, shape.queries);
    const nb::gil_scoped_release release;
    fused_attention<Value>(shape, query_rows, key_rows, value_rows, target, normalisers.data(), threads);
}

template <typename Value>
void gradients(const Rows<const Value>& queries, const Rows<const Value>& keys, const Rows<const Value>& values,
               const std::optional<KeyMask>& visible, const Normalisers<const float>& normalisers,
               const Rows<const Value>& upstream, const Rows<Value>& of_queries, const Rows<Value>& of_keys,
               const Rows<Value>& of_values, bool causal, double probability, std::uint64_t seed, int threads) {
    const AttentionShape shape =
        shape_of<Value>(queries, keys, visible, normalisers.size(), causal, dropout_of(probability, seed), threads);
    const auto query_rows = rows_of("queries", queries, shape, shape.queries), key_rows = rows_of("keys", keys, shape, shape.keys),
               value_rows = rows_of("values", values, shape, shape.keys),
               upstream_rows = rows_of("upstream", upstream, shape, shape.queries);
    const AttentionGradients<Value> target{rows_of("of_queries", of_queries, shape, shape.queries),
                                           rows_of("of_keys", of_keys, shape, shape.keys),
                                           rows_of("of_values", of_values, shape, shape.keys)};
    const nb::gil_scoped_release release;
    fused_attention_gradients<Value>(shape, query_rows, key_rows, value_rows, normalisers.data(), upstream_rows, target, threads);
}

template <typename Value>
void def_attention(nb::module_& module) {
    const auto rows = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("fused_attention", attention<Value>, rows("queries"), rows("keys"), rows("values"), rows("seen").none(),
               rows("mixed"), rows("normalisers"), nb::kw_only(), "causal"_a, "dropout"_a, "seed"_a, "threads"_a);
    module.def("fused_attention_gradients", gradients<Value>, rows("queries"), rows("keys"), rows("values"), rows("seen").none(),
               rows("normalisers"), rows("upstream"), rows("of_queries"), rows("of_keys"), rows("of_values"), nb::kw_only(),
               "causal"_a, "dropout"_a, "seed"_a, "threads"_a);
}

}  // namespace

void bind_fused_attention(nb::module_& module) {
    def_attention<float>(module);
    def_attention<std::uint16_t>(module);
}

namespace {

template <typename Logit>
using Logits = Given<Logit, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Targets = Given<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Best = Given<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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
void def_scores(nb::module_& module) {
    module.def("token_scores", scores_of<Logit>, nb::arg("logits").noconvert(), "targets"_a, "rows"_a,
               nb::arg("scores").noconvert(), nb::arg("normalisers").noconvert(), nb::arg("best").noconvert().none(), nb::kw_only(),
               "smoothing"_a, "threads"_a);
    module.def("token_gradients", gradients_of<Logit>, nb::arg("logits").noconvert(), "targets"_a, "rows"_a, "upstream"_a,
               "normalisers"_a, nb::kw_only(), "smoothing"_a, "penalty"_a, "threads"_a);
}

}  // namespace

void bind_token_scores(nb::module_& module) {
    def_scores<float>(module);
    def_scores<std::uint16_t>(module);
}

}  // namespace fewstep
