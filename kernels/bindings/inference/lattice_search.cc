#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "bindings/numbers.h"
#include "csrc/inference/lattice/viterbi.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fewstep {

namespace {

template <typename T, int N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using MutableArray = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
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
