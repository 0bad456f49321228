#include "csrc/inference/dag/network.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/lexicon.h"
#include "bindings/inference/precision.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Array = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = Vector<std::int64_t>;

std::string got(std::int64_t value) { return ", got " + std::to_string(value); }

struct BoundGraphs {
    GraphNetwork graphs;

    Sources checked(const Table& ids, const Ids& lengths, const Ids& sizes, const GraphRules& rules, int threads) const {
        const TransformerShape& shape = graphs.network.shape;
        const std::size_t classes = graphs.lengths.size() / shape.width;
        require(threads >= 1, "threads: expected at least 1" + got(threads));
        require(lengths.size() == ids.shape(0), "lengths: expected one for each row of sources");
        require(sizes.size() == (classes ? classes : ids.shape(0)), "graph_lengths: expected one for each row of sources, or each length that is predicted");
        for (const std::int64_t size : view(sizes))
            require(size >= 2 && size <= static_cast<std::int64_t>(shape.slots),
                    "graph_lengths: expected 2 to " + std::to_string(shape.slots) + " vertices with codes" + got(size));
        const auto words = static_cast<std::int64_t>(shape.source_words), written = static_cast<std::int64_t>(shape.target_words);
        for (const std::int64_t word : rules.words.banned)
            require(word >= 0 && word < written, "banned: expected ids below " + std::to_string(written) + got(word));
        for (const std::int64_t word : {rules.bos, rules.words.eos, rules.mask})
            require(word >= 0 && word < written, "bos, eos, mask: expected ids below " + std::to_string(written) + got(word));
        require_shortlist(graphs.network.lexicon, rules.shortlist, rules.words.eos);
        require(rules.wanted >= 1, "words: expected at least 1" + got(static_cast<std::int64_t>(rules.wanted)));
        const auto longest = static_cast<std::int64_t>(std::min(ids.shape(1), shape.source_positions));
        for (std::size_t row = 0; row < lengths.size(); ++row) {
            const std::int64_t length = lengths.data()[row];
            const std::string at = "[" + std::to_string(row) + "]: expected ";
            require(length >= 1 && length <= longest, "lengths" + at + "1 to " + std::to_string(longest) + got(length));
            for (std::int64_t place = 0; place < length; ++place) {
                const std::int64_t word = ids.data()[row * ids.shape(1) + static_cast<std::size_t>(place)];
                require(word >= 0 && word < words, "sources" + at + "ids below " + std::to_string(words) + got(word));
            }
        }
        Sources sources{ids.data(), ids.shape(1), {view(lengths).begin(), view(lengths).end()}, std::vector<std::size_t>(ids.shape(0))};
        std::iota(sources.rows.begin(), sources.rows.end(), std::size_t{0});
        return sources;
    }

    nb::list follow(const Table& ids, const Ids& lengths, const Ids& sizes, double word_weight, std::vector<std::int64_t> banned,
                    std::int64_t bos, std::int64_t eos, std::int64_t mask, std::size_t shortlist_words, std::size_t shortlist_links, int threads) const {
        const GraphRules rules{{std::move(banned), eos, 0}, bos, mask, 1, {shortlist_words, shortlist_links}};
        const Sources sources = checked(ids, lengths, sizes, rules, threads);
        std::vector<GraphPath> paths(ids.shape(0));
        {
            const nb::gil_scoped_release release;
            each_graph(graphs, sources, {view(sizes).begin(), view(sizes).end()}, rules,
                       false, threads, [&](std::size_t sentence, Graph& graph) {
                paths[sentence] = fewstep::follow(graph, static_cast<float>(word_weight));
            });
        }
        nb::list all;
        for (const GraphPath& path : paths) all.append(nb::make_tuple(path.ids, path.score));
        return all;
    }

    // Graphs one after the other: vertices of each, their transitions [vertices,vertices], and scores and ids of words [vertices,W].
    nb::tuple scores(const Table& ids, const Ids& lengths, const Ids& sizes, std::size_t words, std::vector<std::int64_t> banned,
                     std::int64_t bos, std::int64_t eos, std::int64_t mask, std::size_t shortlist_words, std::size_t shortlist_links, int threads) const {
        const GraphRules rules{{std::move(banned), eos, 0}, bos, mask, words, {shortlist_words, shortlist_links}};
        const Sources sources = checked(ids, lengths, sizes, rules, threads);
        const std::size_t sentences = ids.shape(0);
        struct Scores {
            std::vector<float> transitions, words;
            std::vector<std::int64_t> ids;
        };
        std::vector<Scores> found(sentences);
        std::vector<std::int64_t> vertices(sentences);
        std::size_t most = 0;
        std::vector<float> transitions, scores;
        std::vector<std::int64_t> tokens;
        {
            const nb::gil_scoped_release release;
            each_graph(graphs, sources, {view(sizes).begin(), view(sizes).end()}, rules,
                       true, threads, [&](std::size_t sentence, Graph& graph) {
                const std::size_t size = graph.vertices();
                Scores& one = found[sentence];
                vertices[sentence] = static_cast<std::int64_t>(size);
                one.words.assign(graph.scores(0), graph.scores(0) + size * words);
                one.ids.assign(graph.ids(0), graph.ids(0) + size * words);
                one.transitions.reserve(size * size);
                for (std::size_t vertex = 0; vertex < size; ++vertex) {
                    const float* row = graph.transitions(vertex);
                    one.transitions.insert(one.transitions.end(), row, row + size);
                }
            });
            for (const std::int64_t size : vertices) most = std::max(most, static_cast<std::size_t>(size));
            constexpr float NONE = -std::numeric_limits<float>::infinity();
            transitions.assign(sentences * most * most, NONE), scores.assign(sentences * most * words, NONE), tokens.assign(sentences * most * words, 0);
            for (std::size_t sentence = 0; sentence < sentences; ++sentence) {
                const auto size = static_cast<std::size_t>(vertices[sentence]);
                for (std::size_t vertex = 0; vertex < size; ++vertex)
                    std::copy_n(found[sentence].transitions.data() + vertex * size, size, transitions.data() + (sentence * most + vertex) * most);
                std::copy_n(found[sentence].words.data(), size * words, scores.data() + sentence * most * words);
                std::copy_n(found[sentence].ids.data(), size * words, tokens.data() + sentence * most * words);
            }
        }
        return nb::make_tuple(own(std::move(vertices)), own(std::move(transitions)), own(std::move(scores)), own(std::move(tokens)));
    }
};

BoundGraphs make(const std::map<std::string, Array>& arrays, std::size_t encoder_layers, std::size_t decoder_layers, std::size_t width,
                 std::size_t feed_forward, std::size_t heads, bool pre_norm, std::size_t source_words, std::size_t target_words,
                 std::size_t source_positions, std::size_t slots, bool gelu, std::size_t classes, const Ids& common_words,
                 const LinkedWords& linked_words, const std::string& precision) {
    Arrays floats;
    for (const auto& [name, array] : arrays) floats.emplace(name, array.data());
    const TransformerShape shape{encoder_layers, decoder_layers, width,        feed_forward,     heads,
                                 pre_norm,       source_words,   target_words, source_positions, slots, gelu};
    const std::size_t links = 2 * width + heads;
    Lexicon lexicon = lexicon_of(common_words, linked_words, shape);
    const nb::gil_scoped_release release;
    const float *codes = floats.at("link_codes"), *lengths = classes ? floats.at("lengths") : nullptr;
    Transformer network(shape, floats);
    network.lexicon = std::move(lexicon);
    return {GraphNetwork(std::move(network), precision_of(precision), PackedMatrix(floats.at("links"), nullptr, links, width),
                         {codes, codes + slots * links}, {lengths, lengths + classes * width})};
}

}  // namespace

void bind_graph_network(nb::module_& module) {
    nb::class_<BoundGraphs>(module, "GraphNetwork")
        .def("follow", &BoundGraphs::follow, "sources"_a, "lengths"_a, "graph_lengths"_a, nb::kw_only(), "word_weight"_a, "banned"_a,
             "bos"_a, "eos"_a, "mask"_a, "shortlist_words"_a, "shortlist_links"_a, "threads"_a)
        .def("scores", &BoundGraphs::scores, "sources"_a, "lengths"_a, "graph_lengths"_a, nb::kw_only(), "words"_a, "banned"_a, "bos"_a,
             "eos"_a, "mask"_a, "shortlist_words"_a, "shortlist_links"_a, "threads"_a);
    module.def("make_graph_network", make, "arrays"_a, nb::kw_only(), "encoder_layers"_a, "decoder_layers"_a, "width"_a, "feed_forward"_a,
               "heads"_a, "pre_norm"_a, "source_words"_a, "target_words"_a, "source_positions"_a, "slots"_a, "gelu"_a, "classes"_a, "common_words"_a, "linked_words"_a, "precision"_a);
}

}  // namespace fewstep
