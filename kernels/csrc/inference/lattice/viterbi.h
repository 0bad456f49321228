// Exact search of a lattice whose slots offer candidates (Deng and Rush 2021, section 3): sums over pairs of neighbours.
//
// A path of T words takes candidate k_p in slot p < T and is worth
//
//     start[k_0] + sum_{p < T-1} edge[p, k_p, k_{p+1}] + exit[T-1, k_{T-1}]          least <= T <= most
//
// Its end needs no states of its own: every slot where a path may end offers an exit. Minus infinity, NaN and plus infinity are
// impossible. Of equally good paths the shortest wins, then the one whose candidate comes first where they part, seen from the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fewstep {

// T is float or double, in which the sums run.
template <typename T>
struct LatticeSentence {
    const T *start, *edges, *exits;        // [K], [N-1,rows,stride], [N,K]
    std::size_t candidates, stride, rows;  // K; from one row of edges to the next; rows from one slot to the next
    std::size_t min_length, max_length;               // words of a path, 1 <= least <= most <= N; or no words at all: most is 0

    const T* edge_row(std::size_t slot, std::size_t candidate) const { return edges + (slot * rows + candidate) * stride; }
    bool may_end(std::size_t slot) const { return slot + 1 >= min_length && slot + 1 <= max_length; }
};

template <typename T>
struct LatticeBatch {
    const T *start, *edges, *exits;                      // [B,K], [B,N-1,K,K], [B,N,K]
    const std::int64_t *min_lengths, *max_lengths;       // [B]
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

// Memory of whoever searches sentence after sentence.
template <typename T>
struct LatticeSpace {
    std::vector<T> sums;                  // of the slot, and of the one before
    std::vector<std::int32_t> predecessors;    // [N,K rounded up] the candidate before; -1 where there is none
};

// alpha_0 = start, alpha_p(j) = max_i alpha_{p-1}(i) + edge(i,j); the best alpha_{T-1}(k) + exit. Writes the candidates of the best
// path and returns its score: minus infinity, and `length` 0, where there is none.
template <typename T>
T best_path(const LatticeSentence<T>& sentence, LatticeSpace<T>& workspace, std::int64_t* path, std::size_t& length);

// The same for a batch: path [B,N] with -1 past the words, lengths and scores [B].
template <typename T>
void lattice_viterbi(const LatticeBatch<T>& batch, int threads, std::int64_t* path, std::int64_t* lengths, T* scores);

// The n best paths, best first, by keeping n at every state: path [B,n,N], lengths and scores [B,n].
template <typename T>
void lattice_n_best(const LatticeBatch<T>& batch, std::size_t n_best, int threads, std::int64_t* path, std::int64_t* lengths, T* scores);

// marginals [B,N,K]: the score of the best path through each candidate, alpha + beta with
// beta_p(i) = max(exit_p(i) where a path may end, max_j edge(i,j) + beta_{p+1}(j)).
template <typename T>
void lattice_max_marginals(const LatticeBatch<T>& batch, int threads, T* marginals);

}  // namespace fewstep
