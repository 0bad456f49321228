// Searches over DAGs: beam search, Viterbi, walks.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/base/parallel.h"
#include "csrc/inference/dag/beam.h"
#include "csrc/inference/dag/viterbi.h"
#include "csrc/inference/dag/walk.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Scores = Cube<float>;
using Ids = Cube<std::int64_t>;
template <typename T>
using Matrix = Given<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require_lengths(const Vector<std::int64_t>& lengths, std::size_t sentences, std::size_t vertices) {
    require(lengths.size() == sentences, "graph_lengths: expected one for each of " + std::to_string(sentences) +
                                             " sentences, got " + std::to_string(lengths.size()));
    for (const std::int64_t length : view(lengths)) {
        require(length >= 0 && length <= static_cast<std::int64_t>(vertices),
                "graph_lengths: expected 0 to " + std::to_string(vertices) + " vertices, got " + std::to_string(length));
    }
}

// The candidates of all sentences.
class Batch {
  public:
    Batch(const Scores& scores, const Ids& next_vertices, const Ids& token_ids, const Vector<std::int64_t>& lengths,
          std::int64_t vocabulary)
        : scores_(scores), next_(next_vertices), tokens_(token_ids), lengths_(lengths), vocabulary_(vocabulary) {
        for (std::size_t axis = 0; axis < 3; ++axis) {
            require(next_.shape(axis) == scores_.shape(axis),
                    "next_vertices: expected the shape of scores, [sentences,vertices,candidates]");
            require(tokens_.shape(axis) == scores_.shape(axis),
                    "token_ids: expected the shape of scores, [sentences,vertices,candidates]");
        }
        require_values("scores", scores_);
        require_lengths(lengths, scores_.shape(0), scores_.shape(1));
        require(scores_.shape(1) < std::numeric_limits<std::int32_t>::max(), "scores: expected fewer vertices");
    }
    std::int64_t size() const { return static_cast<std::int64_t>(scores_.shape(0)); }
    DagCandidates operator[](std::int64_t sentence) const {
        const std::size_t at = static_cast<std::size_t>(sentence) * scores_.shape(1) * scores_.shape(2);
        return {scores_.data() + at,
                next_.data() + at,
                tokens_.data() + at,
                lengths_.data()[sentence],
                static_cast<std::int64_t>(scores_.shape(2)),
                vocabulary_};
    }

  private:
    const Scores& scores_;
    const Ids &next_, &tokens_;
    const Vector<std::int64_t>& lengths_;
    std::int64_t vocabulary_;
};

RepeatRules rules_of(std::int64_t no_repeat_ngram, std::int64_t no_consecutive_repeat) {
    require(no_repeat_ngram >= 0, "no_repeat_ngram: expected at least 0, got " + std::to_string(no_repeat_ngram));
    require(no_consecutive_repeat >= 0, "no_consecutive_repeat: expected at least 0, got " + std::to_string(no_consecutive_repeat));
    return {no_repeat_ngram, no_consecutive_repeat};
}

void require_some(const char* name, std::int64_t value) { require_at_least(name, value, std::int64_t{1}); }

void require_top_p(double top_p) {
    require(top_p > 0 && top_p <= 1, "top_p: expected more than 0 and at most 1, got " + std::to_string(top_p));
}

// A beam search with the memory of idle threads, which later calls reuse.
class BoundDagBeam {
  public:
    explicit BoundDagBeam(const DagBeamOptions& options) : options_(options) {}

    auto search(const Scores& scores, const Ids& next_vertices, const Ids& token_ids, const Vector<std::int64_t>& graph_lengths,
                const NgramScorer* ngram, int threads) {
        require_threads(threads);
        const std::int64_t vocabulary = ngram ? static_cast<std::int64_t>(ngram->size()) : std::numeric_limits<std::int32_t>::max();
        const Batch batch(scores, next_vertices, token_ids, graph_lengths, vocabulary);
        std::vector<std::vector<DagHypothesis>> found(static_cast<std::size_t>(batch.size()));
        {
            const nb::gil_scoped_release release;
            auto searches = take(std::min<std::int64_t>(threads, batch.size()));
            parallel_for(batch.size(), threads, [&](std::int64_t sentence, int thread) {
                found[static_cast<std::size_t>(sentence)] =
                    searches[static_cast<std::size_t>(thread)]->search(batch[sentence], ngram);
            });
            give_back(std::move(searches));
        }
        const auto hypothesis = [](const DagHypothesis& one) { return std::tuple(one.ids, one.score); };
        return mapped(found, [&](const auto& sentence) { return mapped(sentence, hypothesis); });
    }

  private:
    using Searches = std::vector<std::unique_ptr<DagBeam>>;

    Searches take(std::int64_t count) {
        Searches taken;
        const std::lock_guard<std::mutex> guard(taking_);
        for (; static_cast<std::int64_t>(taken.size()) < count && !idle_.empty(); idle_.pop_back())
            taken.push_back(std::move(idle_.back()));
        while (static_cast<std::int64_t>(taken.size()) < count) taken.push_back(std::make_unique<DagBeam>(options_));
        return taken;
    }

    void give_back(Searches searches) {
        const std::lock_guard<std::mutex> guard(taking_);
        for (auto& search : searches) {
            if (search->is_reusable()) idle_.push_back(std::move(search));
        }
    }

    DagBeamOptions options_;
    std::mutex taking_;
    Searches idle_;
};

void make_beam(BoundDagBeam* at, std::int64_t beam_size, std::int64_t beams_per_length, std::int64_t candidates, double top_p,
               double length_penalty, bool count_begin, double ngram_weight, std::int64_t n_best, bool deduplicate,
               std::int64_t no_repeat_ngram, std::int64_t no_consecutive_repeat) {
    require_some("beam_size", beam_size);
    require_some("beams_per_length", beams_per_length);
    require_some("candidates", candidates);
    require_some("n_best", n_best);
    require_top_p(top_p);
    require_range("length_penalty", length_penalty, 0.0, 100.0);
    require_range("ngram_weight", ngram_weight, 0.0, 1e6);
    new (at) BoundDagBeam({beam_size, beams_per_length, candidates, top_p, length_penalty, count_begin, ngram_weight, n_best,
                           deduplicate, rules_of(no_repeat_ngram, no_consecutive_repeat)});
}

// Pad rows of different lengths to an array [rows,width] with -1.
Result<std::int64_t> padded(const std::vector<std::vector<std::int64_t>>& rows) {
    std::size_t width = 0;
    for (const auto& row : rows) width = std::max(width, row.size());
    std::vector<std::int64_t> all(rows.size() * width, -1);
    for (std::size_t i = 0; i < rows.size(); ++i)
        std::copy(rows[i].begin(), rows[i].end(), all.begin() + static_cast<std::ptrdiff_t>(i * width));
    return own(std::move(all));
}

auto viterbi(const Scores& transitions, const Matrix<float>& tokens, const Vector<std::int64_t>& graph_lengths,
             const Vector<std::int64_t>& max_lengths, double length_exponent, int threads) {
    const std::size_t sentences = transitions.shape(0), vertices = transitions.shape(1), band = transitions.shape(2);
    require(band < std::max<std::size_t>(vertices, 1),
            "transition_log_probs: expected the transitions to fewer next vertices than the graph's " + std::to_string(vertices) +
                ", got " + std::to_string(band));
    require(tokens.shape(0) == sentences && tokens.shape(1) == vertices,
            "token_best: expected [sentences,vertices] as in transition_log_probs");
    require_lengths(graph_lengths, sentences, vertices);
    require(max_lengths.size() == sentences, "max_lengths: expected one for each of " + std::to_string(sentences) + " sentences");
    require_range("length_exponent", length_exponent, 0.0, 100.0);
    require_threads(threads);
    require_values("transition_log_probs", transitions);
    require_values("token_best", tokens);
    std::vector<std::vector<std::int64_t>> paths(sentences);
    std::vector<std::int64_t> counts(sentences);
    std::vector<double> scores(sentences);
    {
        const nb::gil_scoped_release release;
        parallel_for(static_cast<std::int64_t>(sentences), threads, [&](std::int64_t sentence, int) {
            const auto at = static_cast<std::size_t>(sentence);
            const DagScores graph{transitions.data() + at * vertices * band, tokens.data() + at * vertices,
                                  graph_lengths.data()[at], static_cast<std::int64_t>(band)};
            DagPath path = dag_viterbi(graph, length_exponent, max_lengths.data()[at]);
            paths[at] = std::move(path.vertices);
            counts[at] = path.tokens;
            scores[at] = path.score;
        });
    }
    return std::tuple(padded(paths), own(std::move(counts)), own(std::move(scores)));
}

Result<std::int64_t> follow(const Matrix<std::int64_t>& next_vertices, const Vector<std::int64_t>& graph_lengths) {
    require_values("next_vertices", next_vertices);
    require_lengths(graph_lengths, next_vertices.shape(0), next_vertices.shape(1));
    std::vector<std::vector<std::int64_t>> paths;
    for (std::size_t i = 0; i < graph_lengths.size(); ++i) {
        const std::int64_t* row = next_vertices.data() + i * next_vertices.shape(1);
        paths.push_back(dag_follow({row, static_cast<std::size_t>(graph_lengths.data()[i])}));
    }
    return padded(paths);
}

auto walk(const Scores& scores, const Ids& next_vertices, const Ids& token_ids, const Vector<std::int64_t>& graph_lengths,
          std::optional<Vector<std::int64_t>> seeds, std::int64_t candidates, double top_p, std::int64_t no_repeat_ngram,
          std::int64_t no_consecutive_repeat, int threads) {
    const Batch batch(scores, next_vertices, token_ids, graph_lengths, std::numeric_limits<std::int32_t>::max());
    require(!seeds || static_cast<std::int64_t>(seeds->size()) == batch.size(),
            "seeds: expected one for each of " + std::to_string(batch.size()) + " sentences");
    require_some("candidates", candidates);
    require_threads(threads);
    require_top_p(top_p);
    const DagWalkOptions options{candidates, top_p, rules_of(no_repeat_ngram, no_consecutive_repeat)};
    const auto sentences = static_cast<std::size_t>(batch.size());
    std::vector<std::vector<std::int64_t>> vertices(sentences), tokens(sentences);
    std::vector<double> sums(sentences);
    {
        const nb::gil_scoped_release release;
        parallel_for(batch.size(), threads, [&](std::int64_t sentence, int) {
            const auto at = static_cast<std::size_t>(sentence);
            DagWalk found = seeds ? dag_sample(batch[sentence], options, static_cast<std::uint64_t>(seeds->data()[at]))
                                  : dag_lookahead(batch[sentence], options);
            vertices[at] = std::move(found.vertices);
            tokens[at] = std::move(found.tokens);
            sums[at] = found.score;
        });
    }
    return std::tuple(padded(vertices), padded(tokens), own(std::move(sums)));
}

}  // namespace

void bind_dag_search(nb::module_& module) {
    nb::class_<BoundDagBeam>(module, "DagBeam")
        .def("__init__", &make_beam, nb::kw_only(), "beam_size"_a, "beams_per_length"_a, "candidates"_a, "top_p"_a,
             "length_penalty"_a, "count_begin"_a, "ngram_weight"_a, "n_best"_a, "deduplicate"_a, "no_repeat_ngram"_a,
             "no_consecutive_repeat"_a)
        .def("search", &BoundDagBeam::search, "scores"_a, "next_vertices"_a, "token_ids"_a, "graph_lengths"_a, nb::kw_only(),
             "ngram"_a.none(), "threads"_a);
    module.def("dag_viterbi", &viterbi, "transition_log_probs"_a, "token_best"_a, "graph_lengths"_a, nb::kw_only(), "max_lengths"_a,
               "length_exponent"_a, "threads"_a);
    module.def("dag_follow", &follow, "next_vertices"_a, "graph_lengths"_a);
    module.def("dag_walk", &walk, "scores"_a, "next_vertices"_a, "token_ids"_a, "graph_lengths"_a, nb::kw_only(), "seeds"_a.none(),
               "candidates"_a, "top_p"_a, "no_repeat_ngram"_a, "no_consecutive_repeat"_a, "threads"_a);
}

}  // namespace fewstep
