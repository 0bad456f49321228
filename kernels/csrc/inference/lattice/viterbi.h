// Exact search in a lattice with a bigram score over adjacent slots (Deng and Rush 2021, section 3).
// A path of T tokens takes candidate k_p in slot p < T and scores
//     start[k_0] + sum_{p < T-1} edge[p, k_p, k_{p+1}] + exit[T-1, k_{T-1}]          min_length <= T <= max_length
// Every slot where a path may end has exits, so the end needs no states. Scores of minus infinity, NaN and plus infinity are
// invalid. Ties go to the shortest path, then to the first candidate at the last slot where paths differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

// The scores of one sentence; sums are of type T, float or double.
template <typename T>
struct LatticeSentence {
    const T *start, *edges, *exits;        // [K], [N-1,rows,stride], [N,K]
    std::size_t candidates, stride, rows;  // K; distance of rows; rows per slot
    std::size_t min_length, max_length;    // tokens of a path, 1 <= min_length <= max_length <= N; max_length 0: the empty path

    const T* edge_row(std::size_t slot, std::size_t candidate) const { return edges + (slot * rows + candidate) * stride; }
    bool may_end(std::size_t slot) const { return slot + 1 >= min_length && slot + 1 <= max_length; }
};

template <typename T>
struct LatticeBatch {
    const T *start, *edges, *exits;                 // [B,K], [B,N-1,K,K], [B,N,K]
    const std::int64_t *min_lengths, *max_lengths;  // [B]
    std::size_t sentences, slots, candidates;

    LatticeSentence<T> sentence(std::size_t b) const {
        const std::size_t steps = slots == 0 ? 0 : slots - 1;
        return {start + b * candidates,
                edges + b * steps * candidates * candidates,
                exits + b * slots * candidates,
                candidates,
                candidates,
                candidates,
                static_cast<std::size_t>(min_lengths[b]),
                static_cast<std::size_t>(max_lengths[b])};
    }
};

// Scratch memory for sentences that are searched one after the other.
template <typename T>
struct LatticeSpace {
    std::vector<T> sums;                     // of the slot, and of the previous one
    std::vector<std::int32_t> predecessors;  // [N,K rounded up] the previous candidate, or -1
};

// alpha_0 = start, alpha_p(j) = max_i alpha_{p-1}(i) + edge(i,j); the result is max alpha_{T-1}(k) + exit. Write the candidates of
// the best path and return its score: minus infinity, with `length` 0, if no path is possible.
template <typename T>
T best_path(const LatticeSentence<T>& sentence, LatticeSpace<T>& workspace, std::int64_t* path, std::size_t& length);

// The same for a batch: path [B,N] padded with -1, lengths and scores [B].
template <typename T>
void lattice_viterbi(const LatticeBatch<T>& batch, int threads, std::int64_t* path, std::int64_t* lengths, T* scores);

// The n best paths, best first, with n partial paths per state: path [B,n,N], lengths and scores [B,n].
template <typename T>
void lattice_n_best(const LatticeBatch<T>& batch, std::size_t n_best, int threads, std::int64_t* path, std::int64_t* lengths,
                    T* scores);

// marginals [B,N,K]: the score of the best path through each candidate, alpha + beta with
//     beta_p(i) = max(exit_p(i) where a path may end, max_j edge(i,j) + beta_{p+1}(j)).
template <typename T>
void lattice_max_marginals(const LatticeBatch<T>& batch, int threads, T* marginals);

}  // namespace fewstep
