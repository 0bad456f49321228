#include "csrc/ops/training/fused_attention.h"

#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "bindings/ops/dropout.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <typename Value>
using Rows = nb::ndarray<Value, nb::ndim<4>, nb::device::cpu>;
template <typename Value>
using Normalisers = nb::ndarray<Value, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using KeyMask = nb::ndarray<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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
void bind(nb::module_& module) {
    const auto rows = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("fused_attention", attention<Value>, rows("queries"), rows("keys"), rows("values"), rows("seen").none(),
               rows("mixed"), rows("normalisers"), nb::kw_only(), "causal"_a, "dropout"_a, "seed"_a, "threads"_a);
    module.def("fused_attention_gradients", gradients<Value>, rows("queries"), rows("keys"), rows("values"), rows("seen").none(),
               rows("normalisers"), rows("upstream"), rows("of_queries"), rows("of_keys"), rows("of_values"), nb::kw_only(),
               "causal"_a, "dropout"_a, "seed"_a, "threads"_a);
}

}  // namespace

void bind_fused_attention(nb::module_& module) {
    bind<float>(module);
    bind<std::uint16_t>(module);
}

}  // namespace fewstep
