#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/network.h"
#include "bindings/numbers.h"
#include "csrc/inference/dag/network.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

struct BoundDagNetwork {
    DagNetwork dags;

    Sources checked(const Table& ids, const Ids& lengths, const Ids& sizes, const DagRules& rules, int threads) const {
        const TransformerShape& shape = dags.network.shape;
        const std::size_t classes = dags.lengths.size() / shape.width;
        require_threads(threads);
        require(sizes.size() == (classes ? classes : ids.shape(0)),
                "graph_lengths: expected one for each row of sources, or each length that is predicted");
        for (const std::int64_t size : view(sizes))
            require(size >= 2 && size <= static_cast<std::int64_t>(shape.slots),
                    "graph_lengths: expected 2 to " + std::to_string(shape.slots) + " vertices with codes" + got(size));
        require(rules.length_rank < std::max<std::size_t>(classes, 1),
                "length_rank: expected one of the predicted lengths" + got(rules.length_rank));
        require_ids("banned", rules.token_rules.banned, shape.target_vocabulary);
        require_ids("bos, eos, mask", std::array{rules.bos, rules.token_rules.eos, rules.mask}, shape.target_vocabulary);
        require_shortlist(dags.network.lexicon, rules.shortlist, rules.token_rules.eos);
        require_range("tokens", rules.num_tokens, std::size_t{1}, shape.target_vocabulary);
        return sources_of(ids, lengths, shape.source_positions, shape.source_vocabulary);
    }

    auto follow(const Table& ids, const Ids& lengths, const Ids& sizes, double token_weight, std::vector<std::int64_t> banned,
                std::int64_t bos, std::int64_t eos, std::int64_t mask, std::size_t shortlist_tokens, std::size_t shortlist_links,
                std::size_t length_rank, int threads) const {
        require_finite("token_weight", token_weight);
        const DagRules rules{{std::move(banned), eos, 0}, bos, mask, 1, {shortlist_tokens, shortlist_links}, length_rank};
        const Sources sources = checked(ids, lengths, sizes, rules, threads);
        std::vector<DagOutput> paths(ids.shape(0));
        {
            const nb::gil_scoped_release release;
            for_each_dag(
                dags, sources, {view(sizes).begin(), view(sizes).end()}, rules, false, threads,
                [&](std::size_t sentence, Dag& dag) { paths[sentence] = fewstep::follow(dag, static_cast<float>(token_weight)); });
        }
        return mapped(paths, [](const DagOutput& path) { return std::tuple(path.ids, path.score); });
    }

    // Return the DAGs of all sentences: numbers of vertices, transitions [vertices,band], and log-probabilities and ids of the top
    // tokens [vertices,W].
    auto scores(const Table& ids, const Ids& lengths, const Ids& sizes, std::size_t num_tokens, std::vector<std::int64_t> banned,
                std::int64_t bos, std::int64_t eos, std::int64_t mask, std::size_t shortlist_tokens, std::size_t shortlist_links,
                std::size_t length_rank, int threads) const {
        const DagRules rules{{std::move(banned), eos, 0}, bos, mask, num_tokens, {shortlist_tokens, shortlist_links}, length_rank};
        const Sources sources = checked(ids, lengths, sizes, rules, threads);
        const std::size_t sentences = ids.shape(0);
        struct Scores {
            std::vector<float> transitions, tokens;
            std::vector<std::int64_t> ids;
        };
        std::vector<Scores> results(sentences);
        std::vector<std::int64_t> vertices(sentences);
        std::size_t max_vertices = 0;
        std::vector<float> transitions, scores;
        std::vector<std::int64_t> token_ids;
        {
            const nb::gil_scoped_release release;
            for_each_dag(dags, sources, {view(sizes).begin(), view(sizes).end()}, rules, true, threads,
                         [&](std::size_t sentence, Dag& dag) {
                             const std::size_t size = dag.vertices();
                             Scores& dag_scores = results[sentence];
                             vertices[sentence] = static_cast<std::int64_t>(size);
                             dag_scores.tokens.assign(dag.scores(0), dag.scores(0) + size * num_tokens);
                             dag_scores.ids.assign(dag.ids(0), dag.ids(0) + size * num_tokens);
                             dag_scores.transitions.reserve(size * dag.band());
                             for (std::size_t vertex = 0; vertex < size; ++vertex) {
                                 const float* row = dag.transitions(vertex);
                                 dag_scores.transitions.insert(dag_scores.transitions.end(), row, row + dag.band());
                             }
                         });
            for (const std::int64_t size : vertices) max_vertices = std::max(max_vertices, static_cast<std::size_t>(size));
            constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();
            const std::size_t max_band = max_vertices > 0 ? std::min(dags.max_transition_length, max_vertices - 1) : 0;
            transitions.assign(sentences * max_vertices * max_band, MINUS_INFINITY),
                scores.assign(sentences * max_vertices * num_tokens, MINUS_INFINITY),
                token_ids.assign(sentences * max_vertices * num_tokens, 0);
            for (std::size_t sentence = 0; sentence < sentences; ++sentence) {
                const auto size = static_cast<std::size_t>(vertices[sentence]);
                const std::size_t band = results[sentence].transitions.size() / size;
                for (std::size_t vertex = 0; vertex < size; ++vertex)
                    std::copy_n(results[sentence].transitions.data() + vertex * band, band,
                                transitions.data() + (sentence * max_vertices + vertex) * max_band);
                std::copy_n(results[sentence].tokens.data(), size * num_tokens,
                            scores.data() + sentence * max_vertices * num_tokens);
                std::copy_n(results[sentence].ids.data(), size * num_tokens,
                            token_ids.data() + sentence * max_vertices * num_tokens);
            }
        }
        return std::tuple(own(std::move(vertices)), own(std::move(transitions)), own(std::move(scores)), own(std::move(token_ids)));
    }
};

BoundDagNetwork make(const NamedArrays& arrays, const Sizes& sizes, std::size_t classes, const Ids& common_tokens,
                     const Table& linked_tokens, const std::string& precision, std::size_t max_transition_length) {
    const Arrays floats = weights_of(arrays);
    const TransformerShape shape = shape_of(sizes);
    Lexicon lexicon = lexicon_of(common_tokens, linked_tokens, shape);
    const nb::gil_scoped_release release;
    Transformer network(shape, floats);  // first, since it checks the sizes
    const std::size_t links = 2 * shape.width + shape.heads;
    const float* codes = floats.at("link_codes", {shape.slots, links});
    const float* lengths = classes ? floats.at("lengths", {classes, shape.width}) : nullptr;
    network.lexicon = std::move(lexicon);
    const bool own_inputs = floats.has("vertex_inputs");
    const float* inputs = own_inputs ? floats.at("vertex_inputs", {3, shape.width}) : nullptr;
    DagNetwork dags(std::move(network), precision_of(precision),
                    PackedMatrix(floats.at("links", {links, shape.width}), nullptr, links, shape.width),
                    {codes, codes + shape.slots * links}, {lengths, lengths + classes * shape.width},
                    {inputs, inputs + (own_inputs ? 3 * shape.width : 0)});
    if (max_transition_length > 0) dags.max_transition_length = max_transition_length;
    return {std::move(dags)};
}

}  // namespace

void bind_dag_network(nb::module_& module) {
    nb::class_<BoundDagNetwork>(module, "DagNetwork")
        .def("follow", &BoundDagNetwork::follow, "sources"_a, "lengths"_a, "graph_lengths"_a, nb::kw_only(), "token_weight"_a,
             "banned"_a, "bos"_a, "eos"_a, "mask"_a, "shortlist_tokens"_a, "shortlist_links"_a, "length_rank"_a, "threads"_a)
        .def("scores", &BoundDagNetwork::scores, "sources"_a, "lengths"_a, "graph_lengths"_a, nb::kw_only(), "tokens"_a, "banned"_a,
             "bos"_a, "eos"_a, "mask"_a, "shortlist_tokens"_a, "shortlist_links"_a, "length_rank"_a, "threads"_a);
    module.def("make_dag_network", make, "arrays"_a, nb::kw_only(), "shape"_a, "classes"_a, "common_tokens"_a, "linked_tokens"_a,
               "precision"_a, "max_transition_length"_a);
}

}  // namespace fewstep
