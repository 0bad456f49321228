#include "csrc/inference/lattice/viterbi.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "csrc/base/parallel.h"
#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

template <typename T>
constexpr T MINUS_INFINITY = -std::numeric_limits<T>::infinity();

template <typename T>
bool is_possible(T score) {
    return score < std::numeric_limits<T>::infinity();  // false for NaN too
}

// A SIMD register of T, and one of integers of the same width.
template <typename T>
struct SimdRegister {
    using Int = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    typedef T Values __attribute__((vector_size(sizeof(F32Vector))));
    typedef Int Indices __attribute__((vector_size(sizeof(F32Vector))));
    static constexpr std::size_t LENGTH = sizeof(F32Vector) / sizeof(T);
};

std::size_t round_up_to_vectors(std::size_t count) { return (count + F32_LANES - 1) / F32_LANES * F32_LANES; }

// Columns [first, first + V vectors) of a step; with PARTIAL the last vector is incomplete.
template <typename T, int V, bool PARTIAL>
void step_block(const LatticeSentence<T>& sentence, std::size_t slot, const T* before, std::size_t first, T* next_scores,
                std::int32_t* predecessors) {
    using Values = typename SimdRegister<T>::Values;
    using Indices = typename SimdRegister<T>::Indices;
    constexpr std::size_t LENGTH = SimdRegister<T>::LENGTH;
    const std::size_t columns = sentence.candidates - first;
    const std::size_t last = PARTIAL ? columns - (V - 1) * LENGTH : LENGTH;
    const Values impossible = std::numeric_limits<T>::infinity() - Values{};
    Values best[V];
    Indices from[V];
    for (int vector = 0; vector < V; ++vector) best[vector] = MINUS_INFINITY<T> - Values{}, from[vector] = -1 - Indices{};
    for (std::size_t i = 0; i < sentence.candidates; ++i) {
        if (!(before[i] > MINUS_INFINITY<T>)) continue;
        const Values sum = before[i] - Values{};
        const Indices index = static_cast<typename SimdRegister<T>::Int>(i) - Indices{};
        const T* row = sentence.edge_row(slot, i) + first;
#pragma GCC unroll 8
        for (int vector = 0; vector < V; ++vector) {
            Values edge = impossible;
            __builtin_memcpy(&edge, row + static_cast<std::size_t>(vector) * LENGTH,
                             PARTIAL && vector == V - 1 ? last * sizeof(T) : sizeof edge);
            const Values score = sum + edge;
            const Indices better = (score > best[vector]) & (edge < impossible);
            best[vector] = better ? score : best[vector];
            from[vector] = better ? index : from[vector];
        }
    }
    for (int vector = 0; vector < V; ++vector) {
        const std::size_t column = first + static_cast<std::size_t>(vector) * LENGTH;
        const std::size_t count = PARTIAL && vector == V - 1 ? last : LENGTH;
        std::copy_n(reinterpret_cast<const T*>(&best[vector]), count, next_scores + column);
        for (std::size_t lane = 0; lane < count; ++lane)
            predecessors[column + lane] = static_cast<std::int32_t>(from[vector][lane]);
    }
}

// alpha of a slot from alpha of the previous slot, with predecessors.
template <typename T>
void step(const LatticeSentence<T>& sentence, std::size_t slot, const T* before, T* next_scores, std::int32_t* predecessors) {
    constexpr std::size_t LENGTH = SimdRegister<T>::LENGTH;
    std::size_t first = 0;
    const std::size_t count = sentence.candidates;
    constexpr int MANY = SIMD_REGISTERS == 32 ? 8 : 4;  // vectors whose best scores and predecessors stay in registers
    for (; first + MANY * LENGTH <= count; first += MANY * LENGTH)
        step_block<T, MANY, false>(sentence, slot, before, first, next_scores, predecessors);
    for (; first + 4 * LENGTH <= count; first += 4 * LENGTH)
        step_block<T, 4, false>(sentence, slot, before, first, next_scores, predecessors);
    for (; first + LENGTH <= count; first += LENGTH)
        step_block<T, 1, false>(sentence, slot, before, first, next_scores, predecessors);
    if (first < count) step_block<T, 1, true>(sentence, slot, before, first, next_scores, predecessors);
}

template <typename T>
void embed_rows(const LatticeSentence<T>& sentence, T* sums) {
    for (std::size_t k = 0; k < sentence.candidates; ++k)
        sums[k] = is_possible(sentence.start[k]) ? sentence.start[k] : MINUS_INFINITY<T>;
}

// Call body(sentence, workspace of the thread) for all sentences.
template <typename T, typename Workspace, typename Body>
void for_each_sentence(const LatticeBatch<T>& batch, int threads, const Body& body) {
    const auto sentences = static_cast<std::int64_t>(batch.sentences);
    std::vector<Workspace> workspaces(
        static_cast<std::size_t>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, sentences))));
    parallel_for(sentences, static_cast<int>(workspaces.size()), [&](std::int64_t b, int thread) {
        body(static_cast<std::size_t>(b), workspaces[static_cast<std::size_t>(thread)]);
    });
}

// One of the n best partial paths to a state: its predecessor candidate and the rank of its predecessor path.
template <typename T>
struct PartialPath {
    T score;
    std::int32_t candidate, rank;
};

// The n best paths in order; the first inserted wins a tie.
template <typename T>
struct BestPaths {
    std::size_t n;
    std::vector<PartialPath<T>> paths;

    // Return whether the path is among the n best.
    bool insert(const PartialPath<T>& path) {
        if (paths.size() == n && !(path.score > paths.back().score)) return false;
        if (paths.size() == n) paths.pop_back();
        const auto position = std::upper_bound(paths.begin(), paths.end(), path,
                                               [](const PartialPath<T>& a, const PartialPath<T>& b) { return a.score > b.score; });
        paths.insert(position, path);
        return true;
    }
};

template <typename T>
struct PathEnd {
    T score;
    std::size_t slot;
    std::int32_t candidate, rank;
};

template <typename T>
using PartialPaths = std::vector<std::vector<BestPaths<T>>>;  // [N][K]

template <typename T>
PartialPaths<T> best_partial_paths(const LatticeSentence<T>& sentence, std::size_t n) {
    const std::size_t count = sentence.candidates;
    PartialPaths<T> paths(sentence.max_length, std::vector<BestPaths<T>>(count, BestPaths<T>{n, {}}));
    for (std::size_t k = 0; k < count; ++k)
        if (is_possible(sentence.start[k]) && sentence.start[k] > MINUS_INFINITY<T>)
            paths[0][k].insert({sentence.start[k], -1, -1});
    for (std::size_t slot = 1; slot < sentence.max_length; ++slot)
        for (std::size_t i = 0; i < count; ++i) {
            const T* row = sentence.edge_row(slot - 1, i);
            const auto& before = paths[slot - 1][i].paths;
            for (std::size_t j = 0; !before.empty() && j < count; ++j) {
                if (!is_possible(row[j]) || !(row[j] > MINUS_INFINITY<T>)) continue;
                for (std::size_t rank = 0; rank < before.size();
                     ++rank)  // sorted: after the first path that is not inserted none is
                    if (!paths[slot][j].insert(
                            {before[rank].score + row[j], static_cast<std::int32_t>(i), static_cast<std::int32_t>(rank)}))
                        break;
            }
        }
    return paths;
}

template <typename T>
std::vector<PathEnd<T>> best_ends(const LatticeSentence<T>& sentence, const PartialPaths<T>& paths, std::size_t n) {
    std::vector<PathEnd<T>> ends;
    for (std::size_t slot = sentence.min_length - 1; slot < sentence.max_length; ++slot)
        for (std::size_t k = 0; k < sentence.candidates; ++k) {
            const T exit = sentence.exits[slot * sentence.candidates + k];
            if (!is_possible(exit) || !(exit > MINUS_INFINITY<T>)) continue;
            const auto& lattice = paths[slot][k].paths;
            for (std::size_t rank = 0; rank < lattice.size(); ++rank)
                ends.push_back({lattice[rank].score + exit, slot, static_cast<std::int32_t>(k), static_cast<std::int32_t>(rank)});
        }
    std::stable_sort(ends.begin(), ends.end(), [](const PathEnd<T>& a, const PathEnd<T>& b) { return a.score > b.score; });
    if (ends.size() > n) ends.resize(n);
    return ends;
}

}  // namespace

template <typename T>
T best_path(const LatticeSentence<T>& sentence, LatticeSpace<T>& workspace, std::int64_t* path, std::size_t& length) {
    const std::size_t count = sentence.candidates, width = round_up_to_vectors(count);
    workspace.sums.resize(2 * width);
    workspace.predecessors.resize(sentence.max_length * width);
    T *now = workspace.sums.data(), *next = now + width, best = MINUS_INFINITY<T>;
    std::size_t last = 0;
    length = 0;
    for (std::size_t slot = 0; slot < sentence.max_length; ++slot) {
        if (slot == 0) {
            embed_rows(sentence, now);
        } else {
            step(sentence, slot - 1, now, next, workspace.predecessors.data() + slot * width);
            std::swap(now, next);
        }
        if (!sentence.may_end(slot)) continue;
        const T* exits = sentence.exits + slot * count;
        for (std::size_t k = 0; k < count; ++k)
            if (is_possible(exits[k]) && now[k] + exits[k] > best) best = now[k] + exits[k], length = slot + 1, last = k;
    }
    for (std::size_t slot = length; slot-- > 0;) {
        path[slot] = static_cast<std::int64_t>(last);
        if (slot > 0) last = static_cast<std::size_t>(workspace.predecessors[slot * width + last]);
    }
    return best;
}

template <typename T>
void lattice_viterbi(const LatticeBatch<T>& batch, int threads, std::int64_t* path, std::int64_t* lengths, T* scores) {
    std::fill_n(path, batch.sentences * batch.slots, -1);
    for_each_sentence<T, LatticeSpace<T>>(batch, threads, [&](std::size_t b, LatticeSpace<T>& workspace) {
        std::size_t length;
        scores[b] = best_path(batch.sentence(b), workspace, path + b * batch.slots, length);
        lengths[b] = static_cast<std::int64_t>(length);
    });
}

template <typename T>
void lattice_n_best(const LatticeBatch<T>& batch, std::size_t n_best, int threads, std::int64_t* path, std::int64_t* lengths,
                    T* scores) {
    std::fill_n(path, batch.sentences * n_best * batch.slots, -1);
    std::fill_n(lengths, batch.sentences * n_best, 0);
    std::fill_n(scores, batch.sentences * n_best, MINUS_INFINITY<T>);
    struct Nothing {};
    for_each_sentence<T, Nothing>(batch, threads, [&](std::size_t b, Nothing&) {
        const LatticeSentence<T> sentence = batch.sentence(b);
        if (sentence.max_length == 0) return;
        const PartialPaths<T> paths = best_partial_paths(sentence, n_best);
        const std::vector<PathEnd<T>> ends = best_ends(sentence, paths, n_best);
        for (std::size_t position = 0; position < ends.size(); ++position) {
            const std::size_t row = b * n_best + position;
            PathEnd<T> at = ends[position];
            scores[row] = at.score;
            lengths[row] = static_cast<std::int64_t>(at.slot + 1);
            for (std::size_t slot = at.slot + 1; slot-- > 0;) {
                path[row * batch.slots + slot] = at.candidate;
                const PartialPath<T>& step =
                    paths[slot][static_cast<std::size_t>(at.candidate)].paths[static_cast<std::size_t>(at.rank)];
                at.candidate = step.candidate, at.rank = step.rank;
            }
        }
    });
}

template <typename T>
void lattice_max_marginals(const LatticeBatch<T>& batch, int threads, T* marginals) {
    std::fill_n(marginals, batch.sentences * batch.slots * batch.candidates, MINUS_INFINITY<T>);
    for_each_sentence<T, LatticeSpace<T>>(batch, threads, [&](std::size_t b, LatticeSpace<T>& workspace) {
        const LatticeSentence<T> sentence = batch.sentence(b);
        const std::size_t count = sentence.candidates, max_length = sentence.max_length;
        if (max_length == 0) return;
        T* alpha = marginals + b * batch.slots * count;
        workspace.predecessors.resize(round_up_to_vectors(count));
        embed_rows(sentence, alpha);
        for (std::size_t slot = 1; slot < max_length; ++slot)
            step(sentence, slot - 1, alpha + (slot - 1) * count, alpha + slot * count, workspace.predecessors.data());
        workspace.sums.assign(2 * count, MINUS_INFINITY<T>);
        T *beta = workspace.sums.data(), *next_scores = beta + count;  // of the slot, and of the next one
        for (std::size_t slot = max_length; slot-- > 0;) {
            for (std::size_t i = 0; i < count; ++i) {
                const T exit = sentence.exits[slot * count + i];
                T best = sentence.may_end(slot) && is_possible(exit) ? exit : MINUS_INFINITY<T>;
                const T* row = sentence.edge_row(slot, i);
                for (std::size_t j = 0; slot + 1 < max_length && j < count; ++j) {
                    const T score = row[j] + next_scores[j];
                    best = is_possible(row[j]) && score > best ? score : best;
                }
                beta[i] = best;
                alpha[slot * count + i] += best;
            }
            std::swap(beta, next_scores);
        }
    });
}

#define FEWSTEP_LATTICE(T)                                                                                    \
    template T best_path(const LatticeSentence<T>&, LatticeSpace<T>&, std::int64_t*, std::size_t&);           \
    template void lattice_viterbi(const LatticeBatch<T>&, int, std::int64_t*, std::int64_t*, T*);             \
    template void lattice_n_best(const LatticeBatch<T>&, std::size_t, int, std::int64_t*, std::int64_t*, T*); \
    template void lattice_max_marginals(const LatticeBatch<T>&, int, T*);
FEWSTEP_LATTICE(float)
FEWSTEP_LATTICE(double)
#undef FEWSTEP_LATTICE

}  // namespace fewstep
