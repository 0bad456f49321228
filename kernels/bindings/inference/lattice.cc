#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <map>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/inference/network.h"
#include "bindings/numbers.h"
#include "csrc/inference/lattice/decoding.h"
#include "csrc/inference/lattice/viterbi.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <int N>
using Result = Given<float, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

std::string below(std::size_t vocabulary_size) { return "expected ids below " + std::to_string(vocabulary_size); }

Normaliser normaliser_of(const std::string& name) {
    if (name == "full") return Normaliser::FULL;
    if (name == "union") return Normaliser::UNION;
    if (name == "local") return Normaliser::LOCAL;
    if (name == "selfnorm") return Normaliser::NONE;
    throw std::invalid_argument("normaliser: expected full, union, local or selfnorm, got " + name);
}

constexpr std::int64_t MAX_CANDIDATES = 1 << 12;  // two adjacent slots take memory for each pair of candidates

struct BoundLatticeNetwork {
    LatticeNetwork network;

    Sources checked(const Table& ids, const Ids& lengths) const {
        return sources_of(ids, lengths, network.network.shape.source_positions, network.network.shape.source_vocabulary);
    }

    LatticeRules rules_of(const std::string& normaliser, float count_weight, float token_bonus, float candidate_threshold,
                          std::int64_t bos, std::int64_t eos, int threads) const {
        const std::size_t vocabulary_size = network.network.shape.target_vocabulary;
        require_ids("bos, eos", std::array{bos, eos}, vocabulary_size);
        require_threads(threads);
        require_at_least("candidate_threshold", candidate_threshold, 0.0F);
        require_finite("count_weight", count_weight);
        require_finite("token_bonus", token_bonus);
        return {normaliser_of(normaliser), count_weight, token_bonus, candidate_threshold, bos, eos};
    }

    LatticeCandidates candidates_of(const Cube<std::int64_t>& ids, const Cube<double>& log_probs, const Ids& min_lengths,
                                    const Ids& max_lengths, std::size_t sentences) const {
        const std::size_t slots = ids.shape(1), count = ids.shape(2), vocabulary_size = network.network.shape.target_vocabulary;
        const std::size_t codes = network.network.shape.slots;
        require(ids.shape(0) == sentences && min_lengths.size() == sentences && max_lengths.size() == sentences &&
                    log_probs.shape(0) == sentences && log_probs.shape(1) == slots && log_probs.shape(2) == count && count >= 1,
                "candidates: expected token_ids and log_probs [B,N,K], min_lengths and max_lengths [B] with B " +
                    std::to_string(sentences));
        for (std::size_t b = 0; b < sentences; ++b) {
            const std::int64_t low = view(min_lengths)[b], high = view(max_lengths)[b];
            require((high == 0 && low == 0) || (low >= 1 && low <= high && high <= static_cast<std::int64_t>(slots)),
                    "min_lengths, max_lengths[" + std::to_string(b) + "]: expected 1 <= min_length <= max_length <= " +
                        std::to_string(slots) + " slots, or 0 and 0, got " + std::to_string(low) + " and " + std::to_string(high));
            require(high < static_cast<std::int64_t>(codes), "source " + std::to_string(b) +
                                                                 ": expected a lattice of fewer slots than the " +
                                                                 std::to_string(codes) + " position codes" + got(high));
        }
        for (std::size_t position = 0; position < ids.size(); ++position)
            require(ids.data()[position] < static_cast<std::int64_t>(vocabulary_size),
                    "token_ids: " + below(vocabulary_size) + got(ids.data()[position]));
        return {ids.data(), log_probs.data(), min_lengths.data(), max_lengths.data(), slots, slots == 0 ? 1 : count};
    }

    static auto as_tuple(const std::vector<LatticeOutcome>& outcomes, const LatticeSeconds& seconds) {
        return std::tuple(mapped(outcomes, [](const LatticeOutcome& one) { return std::tuple(one.tokens, one.score); }),
                          std::vector<double>(seconds.begin(), seconds.end()));
    }

    auto decode(const Table& ids, const Ids& lengths, const CandidateTables& tables, std::int64_t candidates, std::int64_t window,
                double min_prior, const std::string& normaliser, float count_weight, float token_bonus, float candidate_threshold,
                std::int64_t bos, std::int64_t eos, int threads) const {
        const Sources sources = checked(ids, lengths);
        const LatticeRules rules = rules_of(normaliser, count_weight, token_bonus, candidate_threshold, bos, eos, threads);
        const TableHeader& header = tables.header();
        const TransformerShape& shape = network.network.shape;
        require(header.limits.source_size == shape.source_vocabulary && header.limits.target_size == shape.target_vocabulary,
                "tables: expected those of a network of " + std::to_string(shape.source_vocabulary) + " source and " +
                    std::to_string(shape.target_vocabulary) + " target tokens, got " + std::to_string(header.limits.source_size) +
                    " and " + std::to_string(header.limits.target_size));
        require_range("candidates", candidates, std::int64_t{1}, MAX_CANDIDATES);
        require_range("window", window, std::int64_t{0}, MAX_WINDOW);
        require_finite("min_prior", min_prior);
        for (std::size_t row = 0; row < sources.lengths.size(); ++row)
            require(ids.data()[row * ids.shape(1) + static_cast<std::size_t>(sources.lengths[row]) - 1] == eos,
                    "sources[" + std::to_string(row) + "]: expected EOS (" + std::to_string(eos) + ") as the last id");
        std::vector<LatticeOutcome> outcomes;
        LatticeSeconds seconds{};
        {
            const nb::gil_scoped_release release;
            outcomes = decode_lattices(network, sources, {&tables, candidates, window, min_prior}, rules, threads, seconds);
        }
        return as_tuple(outcomes, seconds);
    }

    auto decode_candidates(const Table& ids, const Ids& lengths, const Cube<std::int64_t>& token_ids, const Cube<double>& log_probs,
                           const Ids& min_lengths, const Ids& max_lengths, const std::string& normaliser, float count_weight,
                           float token_bonus, float candidate_threshold, std::int64_t bos, std::int64_t eos, int threads) const {
        const Sources sources = checked(ids, lengths);
        const LatticeRules rules = rules_of(normaliser, count_weight, token_bonus, candidate_threshold, bos, eos, threads);
        const LatticeCandidates candidates = candidates_of(token_ids, log_probs, min_lengths, max_lengths, ids.shape(0));
        std::vector<LatticeOutcome> outcomes;
        LatticeSeconds seconds{};
        {
            const nb::gil_scoped_release release;
            outcomes = decode_lattices(network, sources, candidates, rules, threads, seconds);
        }
        return as_tuple(outcomes, seconds);
    }

    void score(const Table& ids, const Ids& lengths, const Cube<std::int64_t>& token_ids, const Cube<double>& log_probs,
               const Ids& min_lengths, const Ids& max_lengths, const Result<2>& start, const Result<4>& edges,
               const Result<3>& exits, const std::string& normaliser, float count_weight, float token_bonus,
               float candidate_threshold, std::int64_t bos, std::int64_t eos, int threads) const {
        const Sources sources = checked(ids, lengths);
        const LatticeRules rules = rules_of(normaliser, count_weight, token_bonus, candidate_threshold, bos, eos, threads);
        const LatticeCandidates candidates = candidates_of(token_ids, log_probs, min_lengths, max_lengths, ids.shape(0));
        const std::size_t steps = candidates.slots == 0 ? 0 : candidates.slots - 1;
        require(start.size() == ids.shape(0) * candidates.candidates && exits.size() == token_ids.size() &&
                    edges.size() == ids.shape(0) * steps * candidates.candidates * candidates.candidates,
                "results: expected [B,K], [B,N-1,K,K] and [B,N,K]");
        const nb::gil_scoped_release release;
        score_lattices(network, sources, candidates, rules, threads, start.data(), edges.data(), exits.data());
    }
};

BoundLatticeNetwork make(const NamedArrays& arrays, const Sizes& sizes, const std::string& precision) {
    const Arrays floats = weights_of(arrays);
    const TransformerShape shape = shape_of(sizes);
    const nb::gil_scoped_release release;
    return {LatticeNetwork(shape, floats, precision_of(precision))};
}

}  // namespace

void bind_lattice_network(nb::module_& module) {
    nb::class_<BoundLatticeNetwork>(module, "LatticeNetwork")
        .def("decode", &BoundLatticeNetwork::decode, "sources"_a, "lengths"_a, "tables"_a, nb::kw_only(), "candidates"_a,
             "window"_a, "min_prior"_a, "normaliser"_a, "count_weight"_a, "token_bonus"_a, "candidate_threshold"_a, "bos"_a,
             "eos"_a, "threads"_a)
        .def("decode_candidates", &BoundLatticeNetwork::decode_candidates, "sources"_a, "lengths"_a, "token_ids"_a, "log_probs"_a,
             "min_lengths"_a, "max_lengths"_a, nb::kw_only(), "normaliser"_a, "count_weight"_a, "token_bonus"_a,
             "candidate_threshold"_a, "bos"_a, "eos"_a, "threads"_a)
        .def("score", &BoundLatticeNetwork::score, "sources"_a, "lengths"_a, "token_ids"_a, "log_probs"_a, "min_lengths"_a,
             "max_lengths"_a, "start"_a, "edges"_a, "exits"_a, nb::kw_only(), "normaliser"_a, "count_weight"_a, "token_bonus"_a,
             "candidate_threshold"_a, "bos"_a, "eos"_a, "threads"_a);
    module.def("make_lattice_network", make, "arrays"_a, nb::kw_only(), "shape"_a, "precision"_a);
}

namespace {

template <typename T, int N>
using Array = Given<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using MutableArray = Given<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Lengths = Vector<std::int64_t>;

template <typename T>
LatticeBatch<T> batch_of(const Array<T, 2>& start, const Array<T, 4>& edges, const Array<T, 3>& exits, const Lengths& min_lengths,
                         const Lengths& max_lengths, int threads) {
    const std::size_t sentences = exits.shape(0), slots = exits.shape(1), candidates = exits.shape(2);
    const std::string sizes = " with B " + std::to_string(sentences) + ", N " + std::to_string(slots) + " and K " +
                              std::to_string(candidates) + " as in exits";
    require(start.shape(0) == sentences && start.shape(1) == candidates, "start: expected [B,K]" + sizes);
    require(edges.shape(0) == sentences && edges.shape(1) == (slots == 0 ? 0 : slots - 1) && edges.shape(2) == candidates &&
                edges.shape(3) == candidates,
            "edges: expected [B,N-1,K,K]" + sizes);
    require(min_lengths.size() == sentences && max_lengths.size() == sentences, "min_lengths, max_lengths: expected [B]" + sizes);
    require_threads(threads);
    require_values("start", start);
    require_values("exits", exits);
    for (std::size_t b = 0; b < sentences; ++b) {
        const std::int64_t min_length = view(min_lengths)[b], max_length = view(max_lengths)[b];
        const bool none = max_length == 0 && min_length >= 0 && min_length <= 1;
        require(none || (min_length >= 1 && min_length <= max_length && max_length <= static_cast<std::int64_t>(slots)),
                "min_lengths, max_lengths[" + std::to_string(b) +
                    "]: expected 1 <= min_length <= max_length <= " + std::to_string(slots) + " slots, or 0 and 0, got " +
                    std::to_string(min_length) + " and " + std::to_string(max_length));
    }
    return {start.data(), edges.data(), exits.data(), min_lengths.data(), max_lengths.data(), sentences, slots, candidates};
}

template <typename T>
void viterbi(const Array<T, 2>& start, const Array<T, 4>& edges, const Array<T, 3>& exits, const Lengths& min_lengths,
             const Lengths& max_lengths, const MutableArray<std::int64_t, 2>& path, const MutableVector<std::int64_t>& lengths,
             const MutableVector<T>& scores, int threads) {
    const LatticeBatch<T> batch = batch_of<T>(start, edges, exits, min_lengths, max_lengths, threads);
    require(path.size() == batch.sentences * batch.slots && lengths.size() == batch.sentences && scores.size() == batch.sentences,
            "results: expected [B,N], [B] and [B]");
    const nb::gil_scoped_release release;
    lattice_viterbi(batch, threads, path.data(), lengths.data(), scores.data());
}

template <typename T>
void n_best(const Array<T, 2>& start, const Array<T, 4>& edges, const Array<T, 3>& exits, const Lengths& min_lengths,
            const Lengths& max_lengths, const MutableArray<std::int64_t, 3>& path, const MutableArray<std::int64_t, 2>& lengths,
            const MutableArray<T, 2>& scores, int threads) {
    const LatticeBatch<T> batch = batch_of<T>(start, edges, exits, min_lengths, max_lengths, threads);
    const std::size_t count = path.shape(1), rows = batch.sentences * count;
    require(path.size() == rows * batch.slots && lengths.size() == rows && scores.size() == rows,
            "results: expected [B,n,N], [B,n], [B,n]");
    require(count >= 1, "n_best: expected at least 1");
    const nb::gil_scoped_release release;
    lattice_n_best(batch, count, threads, path.data(), lengths.data(), scores.data());
}

template <typename T>
void max_marginals(const Array<T, 2>& start, const Array<T, 4>& edges, const Array<T, 3>& exits, const Lengths& min_lengths,
                   const Lengths& max_lengths, const MutableArray<T, 3>& marginals, int threads) {
    const LatticeBatch<T> batch = batch_of<T>(start, edges, exits, min_lengths, max_lengths, threads);
    require(marginals.size() == exits.size(), "marginals: expected [B,N,K]");
    const nb::gil_scoped_release release;
    lattice_max_marginals(batch, threads, marginals.data());
}

template <typename T>
void bind(nb::module_& module) {
    const auto whole = [](const char* name) { return nb::arg(name).noconvert(); };
    const auto define = [&](const char* name, auto function, const auto&... results) {
        module.def(name, function, whole("start"), whole("edges"), whole("exits"), whole("min_lengths"), whole("max_lengths"),
                   results..., nb::kw_only(), "threads"_a);
    };
    define("lattice_viterbi", viterbi<T>, whole("path"), whole("lengths"), whole("scores"));
    define("lattice_n_best", n_best<T>, whole("path"), whole("lengths"), whole("scores"));
    define("lattice_max_marginals", max_marginals<T>, whole("marginals"));
}

}  // namespace

void bind_lattice_search(nb::module_& module) {
    bind<float>(module);
    bind<double>(module);
}

}  // namespace fewstep
