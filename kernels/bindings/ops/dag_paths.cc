#include <algorithm>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/ops/dag/paths.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <typename T>
using MutableMatrix = Given<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Lengths = Vector<std::int64_t>;

Scores given(const float* values) { return {values, nullptr}; }
Scores given(const double* values) { return {nullptr, values}; }
Results wanted(float* values) { return {values, nullptr}; }
Results wanted(double* values) { return {nullptr, values}; }

void require_lengths(const Lengths& lengths, const char* name, std::size_t sentences, std::size_t max_length) {
    require(lengths.size() == sentences, std::string(name) + ": expected [B] with B " + std::to_string(sentences));
    for (const std::int64_t length : view(lengths))
        require(length >= 0 && length <= static_cast<std::int64_t>(max_length),
                std::string(name) + ": expected 0 to " + std::to_string(max_length) + ", got " + std::to_string(length));
}

template <typename T>
DagBatch batch_of(const Cube<T>& tokens, const Cube<T>& transitions, const Lengths& target_lengths, const Lengths& graph_lengths) {
    const std::size_t sentences = tokens.shape(0), vertices = tokens.shape(2), band = transitions.shape(2);
    require(transitions.shape(0) == sentences && transitions.shape(1) == vertices && band < std::max<std::size_t>(vertices, 1),
            "transition_log_probs: expected [B,L,D] with B " + std::to_string(sentences) + ", L " + std::to_string(vertices) +
                " and D below L");
    require_values("tokens", tokens);
    require_values("transition_log_probs", transitions);
    require_lengths(target_lengths, "target_lengths", sentences, tokens.shape(1));
    require_lengths(graph_lengths, "graph_lengths", sentences, vertices);
    return {given(tokens.data()),
            given(transitions.data()),
            target_lengths.data(),
            graph_lengths.data(),
            sentences,
            tokens.shape(1),
            vertices,
            band};
}

template <typename T>
void log_likelihood(const Cube<T>& tokens, const Cube<T>& transitions, const Lengths& target_lengths, const Lengths& graph_lengths,
                    const MutableVector<T>& result, bool log_space, int threads) {
    const DagBatch batch = batch_of(tokens, transitions, target_lengths, graph_lengths);
    require(result.size() == batch.sentences, "result: expected [B]");
    require_threads(threads);
    const nb::gil_scoped_release release;
    dag_log_likelihood(batch, log_space, threads, wanted(result.data()));
}

template <typename T>
void posteriors(const Cube<T>& tokens, const Cube<T>& transitions, const Lengths& target_lengths, const Lengths& graph_lengths,
                const MutableVector<T>& result, const MutableCube<T>& token_posteriors, const MutableCube<T>& transition_posteriors,
                bool log_space, int threads) {
    const DagBatch batch = batch_of(tokens, transitions, target_lengths, graph_lengths);
    require(result.size() == batch.sentences, "result: expected [B]");
    for (std::size_t i = 0; i < 3; ++i)
        require(token_posteriors.shape(i) == tokens.shape(i) && transition_posteriors.shape(i) == transitions.shape(i),
                "posteriors: expected the shapes of the scores");
    require_threads(threads);
    const nb::gil_scoped_release release;
    dag_posteriors(batch, log_space, threads, wanted(result.data()),
                   {wanted(token_posteriors.data()), wanted(transition_posteriors.data())});
}

template <typename T>
void best_alignment(const Cube<T>& tokens, const Cube<T>& transitions, const Lengths& target_lengths, const Lengths& graph_lengths,
                    const MutableMatrix<std::int64_t>& vertices, const MutableVector<T>& scores, int threads) {
    const DagBatch batch = batch_of(tokens, transitions, target_lengths, graph_lengths);
    require(vertices.shape(0) == batch.sentences && vertices.shape(1) == batch.max_tokens, "vertices: expected [B,M]");
    require(scores.size() == batch.sentences, "scores: expected [B]");
    require_threads(threads);
    const nb::gil_scoped_release release;
    dag_best_alignment(batch, threads, vertices.data(), wanted(scores.data()));
}

template <typename T>
void bind(nb::module_& module) {
    const auto whole = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("dag_log_likelihood", log_likelihood<T>, whole("tokens"), whole("transitions"), whole("target_lengths"),
               whole("graph_lengths"), whole("result"), nb::kw_only(), "log_space"_a, "threads"_a);
    module.def("dag_posteriors", posteriors<T>, whole("tokens"), whole("transitions"), whole("target_lengths"),
               whole("graph_lengths"), whole("result"), whole("token_posteriors"), whole("transition_posteriors"), nb::kw_only(),
               "log_space"_a, "threads"_a);
    module.def("dag_best_alignment", best_alignment<T>, whole("tokens"), whole("transitions"), whole("target_lengths"),
               whole("graph_lengths"), whole("vertices"), whole("scores"), nb::kw_only(), "threads"_a);
}

}  // namespace

void bind_dag_paths(nb::module_& module) {
    bind<float>(module);
    bind<double>(module);
}

}  // namespace fewstep
