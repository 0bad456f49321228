// n-gram language models: estimation, files, queries.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/inference/ngram/model.h"
#include "csrc/ops/ngram/estimate.h"
#include "csrc/ops/ngram/runs.h"
#include "csrc/ops/ngram/table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

using Model = std::shared_ptr<const NgramModel>;

// A text: Python bytes, or a file that is mapped.
class Source {
  public:
    explicit Source(const nb::object& source) {
        if (nb::isinstance<nb::bytes>(source)) {
            const auto bytes = nb::borrow<nb::bytes>(source);
            text_ = {bytes.c_str(), bytes.size()};
        } else {
            file_.emplace(nb::cast<std::string>(source));
            text_ = {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
        }
    }
    std::string_view text() const { return text_; }

  private:
    std::optional<MappedFile> file_;
    std::string_view text_;
};

Description described(const NgramEstimate& estimate) {
    nb::list discounts, fallback;
    for (const NgramDiscounts& of_order : estimate.discounts) {
        discounts.append(nb::make_tuple(of_order.amount[1], of_order.amount[2], of_order.amount[3]));
        fallback.append(of_order.fallback);
    }
    Description result;
    result["discounts"] = discounts;
    result["fallback"] = fallback;
    result["distinct"] = nb::cast(estimate.distinct);
    result["sentences"] = estimate.sentences;
    result["tokens"] = estimate.tokens;
    result["skipped"] = estimate.skipped;
    return result;
}

// Call a function without the GIL. A text that is too large is a MemoryError.
template <typename Function>
auto unlocked(const Function& function) {
    try {
        const nb::gil_scoped_release released;
        return function();
    } catch (const std::length_error& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
        throw nb::python_error();
    }
}

template <typename Text>
std::pair<Model, Description> estimate_from(const Text& text, const NgramOptions& options) {
    require_threads(options.threads);
    NgramEstimate found;
    const Model model = unlocked([&] {
        found = estimate_ngrams(text, options);
        return std::make_shared<const NgramModel>(NgramModel::own(build_ngram_file(std::move(found.table), options.threads)));
    });
    return {model, described(found)};
}

std::pair<Model, Description> estimate(const nb::object& source, int order, std::vector<std::uint64_t> prune,
                                       std::optional<std::array<double, 3>> discount_fallback, bool interpolate_unigrams,
                                       bool skip_special, int threads, std::uint64_t memory) {
    return estimate_from(Source(source).text(),
                         {order, std::move(prune), discount_fallback, interpolate_unigrams, skip_special, threads, memory});
}

std::pair<Model, Description> estimate_counts(const NgramRuns& counts, std::vector<std::uint64_t> prune,
                                              std::optional<std::array<double, 3>> discount_fallback, bool interpolate_unigrams,
                                              int threads, std::uint64_t memory) {
    return estimate_from(counts,
                         {counts.order(), std::move(prune), discount_fallback, interpolate_unigrams, false, threads, memory});
}

nb::bytes text_words(const nb::object& source, bool skip_special, int threads) {
    require_threads(threads);
    const Source text(source);
    const NgramCorpus corpus = unlocked([&] { return read_ngram_corpus(text.text(), skip_special, threads); });
    std::string lines;
    for (std::size_t id = NGRAM_SPECIAL; id < corpus.words.size(); ++id) lines += corpus.words[id] + '\n';
    return nb::bytes(lines.data(), lines.size());
}

Counts described(const NgramRunHeader& header) {
    Counts result;
    result["order"] = header.order;
    result["sentences"] = header.sentences;
    result["tokens"] = header.tokens;
    result["skipped"] = header.skipped;
    return result;
}

Counts count(const nb::object& source, const nb::object& words, const std::string& path, int order, bool skip_special,
             int threads) {
    require_threads(threads);
    const Source text(source), all(words);
    return described(unlocked([&] { return write_ngram_run(text.text(), all.text(), order, skip_special, threads, path); }));
}

std::shared_ptr<NgramRuns> open_counts(const std::vector<std::string>& paths, const nb::object& words) {
    const Source all(words);
    return unlocked([&] { return std::make_shared<NgramRuns>(paths, all.text()); });
}

Model read(const nb::object& source, const std::string& name) {
    const Source text(source);
    const nb::gil_scoped_release unlocked;
    return std::make_shared<const NgramModel>(NgramModel::own(build_ngram_file(read_arpa(text.text(), name), 1)));
}

auto score_text(const NgramModel& model, const nb::object& source, bool bos, bool eos, int threads) {
    require_threads(threads);
    const Source text(source);
    NgramSentence sum;
    std::uint64_t words = 0, unknown = 0, sentences = 0;
    {
        const nb::gil_scoped_release unlocked;
        for (const NgramSentence& sentence : score_ngram_lines(model, text.text(), bos, eos, threads)) {
            sum.log_prob += sentence.log_prob;
            sum.unknown_log_prob += sentence.unknown_log_prob;
            words += sentence.words;
            unknown += sentence.unknown;
            ++sentences;
        }
    }
    return std::tuple(sentences, words, unknown, sum.log_prob, sum.unknown_log_prob);
}

std::string_view view(const nb::bytes& text) { return {text.c_str(), text.size()}; }

std::pair<double, NgramState> step(const NgramModel& model, NgramState state, std::uint32_t word) {
    if (state >= model.states() || word >= model.words()) throw std::invalid_argument("expected a state and a word of this model");
    NgramState next = NgramModel::EMPTY;
    const double log_prob = model.score(state, word, next);
    return {log_prob, next};
}

auto words(const NgramModel& model) {
    std::vector<nb::bytes> all;
    for (std::uint32_t id = 0; id < model.words(); ++id) all.emplace_back(model.text(id).data(), model.text(id).size());
    return all;
}

// The unigrams and bigrams of a model in arrays, for look-ups outside this code.
auto bigrams(const NgramModel& model) {
    std::vector<float> log_probs, backoffs, pair_log_probs;  // to base 10
    std::vector<std::int64_t> pairs;                         // ascending
    model.for_each(1, [&](auto, float log_prob, float backoff) { log_probs.push_back(log_prob), backoffs.push_back(backoff); });
    if (model.order() > 1) {
        model.for_each(2, [&](std::span<const std::uint32_t> words, float log_prob, float) {
            pairs.push_back(static_cast<std::int64_t>(words[0]) * model.words() + words[1]);
            pair_log_probs.push_back(log_prob);
        });
    }
    return std::tuple(own(std::move(log_probs)), own(std::move(backoffs)), own(std::move(pairs)), own(std::move(pair_log_probs)));
}

NgramScorer scorer(const Model& model, const nb::typed<nb::list, nb::bytes>& pieces) {
    std::vector<std::uint32_t> ids;
    for (const auto& piece : pieces) ids.push_back(model->word(view(nb::cast<nb::bytes>(piece))));
    return {model, std::move(ids)};
}

}  // namespace

void bind_ngram(nb::module_& module) {
    nb::class_<NgramScorer>(module, "NgramScorer")
        .def("__len__", &NgramScorer::size)
        .def("begin", &NgramScorer::begin)
        .def("step",
             [](const NgramScorer& self, NgramState state, std::uint32_t piece) {
                 if (piece >= self.size())
                     throw std::invalid_argument("piece: expected an id below " + std::to_string(self.size()));
                 return step(self.model(), state, self.words()[piece]);
             })
        .def("bigrams", [](const NgramScorer& self) { return bigrams(self.model()); })
        .def_prop_ro("words", &NgramScorer::words);
    module.def("ngram_words", &text_words, "source"_a, nb::kw_only(), "skip_special"_a, "threads"_a);
    module.def("count_ngrams", &count, "source"_a, "words"_a, "path"_a, nb::kw_only(), "order"_a, "skip_special"_a, "threads"_a);
    module.def("read_ngram_counts",
               [](const std::string& path) { return described(unlocked([&] { return NgramRunFile(path).header(); })); });
    nb::class_<NgramRuns>(module, "NgramCounts").def_static("open", &open_counts, "paths"_a, "words"_a);
    nb::class_<NgramModel>(module, "NgramModel")
        .def_static("estimate", &estimate, "source"_a, nb::kw_only(), "order"_a, "prune"_a, "discount_fallback"_a.none(),
                    "interpolate_unigrams"_a, "skip_special"_a, "threads"_a, "memory"_a)
        .def_static("estimate_counts", &estimate_counts, "counts"_a, nb::kw_only(), "prune"_a, "discount_fallback"_a.none(),
                    "interpolate_unigrams"_a, "threads"_a, "memory"_a)
        .def_static("read_arpa", &read, "source"_a, "name"_a)
        .def_static(
            "map", [](const std::string& path) { return std::make_shared<const NgramModel>(NgramModel::map(path)); },
            nb::call_guard<nb::gil_scoped_release>())
        .def(
            "write", [](const NgramModel& self, const std::string& path) { write_file(path, std::array{self.bytes()}); },
            nb::call_guard<nb::gil_scoped_release>())
        .def(
            "write_arpa", [](const NgramModel& self, const std::string& path) { write_arpa(self, path); },
            nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("order", &NgramModel::order)
        .def_prop_ro("counts",
                     [](const NgramModel& self) { return std::vector<std::uint64_t>(self.counts().begin(), self.counts().end()); })
        .def_prop_ro("size", [](const NgramModel& self) { return self.bytes().size(); })
        .def("words", &words)
        .def("word", [](const NgramModel& self, const nb::bytes& text) { return self.word(view(text)); })
        .def("begin", &NgramModel::begin)
        .def("step", &step)
        .def("score_text", &score_text, "source"_a, nb::kw_only(), "bos"_a, "eos"_a, "threads"_a)
        .def("scorer", &scorer);
}

}  // namespace fewstep
