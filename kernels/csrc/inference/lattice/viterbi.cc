#include "csrc/inference/lattice/viterbi.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "csrc/base/parallel.h"
#include "csrc/base/simd_f32.h"

namespace fewstep {

namespace {

template <typename T>
constexpr T NONE = -std::numeric_limits<T>::infinity();

template <typename T>
bool possible(T score) {
    return score < std::numeric_limits<T>::infinity();  // not NaN either
}

// A register of T, and of integers as wide.
template <typename T>
struct Register {
    using Int = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    typedef T Values __attribute__((vector_size(sizeof(Floats))));
    typedef Int Indices __attribute__((vector_size(sizeof(Floats))));
    static constexpr std::size_t LENGTH = sizeof(Floats) / sizeof(T);
};

std::size_t rounded_up(std::size_t count) { return (count + LANES - 1) / LANES * LANES; }

// Columns [first, first + V vectors) of one step; the last vector may have fewer (PARTIAL).
template <typename T, int V, bool PARTIAL>
void step_block(const LatticeSentence<T>& sentence, std::size_t slot, const T* before, std::size_t first, T* after, std::int32_t* origins) {
    using Values = typename Register<T>::Values;
    using Indices = typename Register<T>::Indices;
    constexpr std::size_t LENGTH = Register<T>::LENGTH;
    const std::size_t columns = sentence.candidates - first;
    const std::size_t last = PARTIAL ? columns - (V - 1) * LENGTH : LENGTH;
    const Values impossible = std::numeric_limits<T>::infinity() - Values{};
    Values best[V];
    Indices from[V];
    for (int vector = 0; vector < V; ++vector) best[vector] = NONE<T> - Values{}, from[vector] = -1 - Indices{};
    for (std::size_t i = 0; i < sentence.candidates; ++i) {
        if (!(before[i] > NONE<T>)) continue;
        const Values sum = before[i] - Values{};
        const Indices index = static_cast<typename Register<T>::Int>(i) - Indices{};
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
        std::copy_n(reinterpret_cast<const T*>(&best[vector]), count, after + column);
        for (std::size_t lane = 0; lane < count; ++lane) origins[column + lane] = static_cast<std::int32_t>(from[vector][lane]);
    }
}

// alpha of a slot from that of the slot before it, and where it came from.
template <typename T>
void step(const LatticeSentence<T>& sentence, std::size_t slot, const T* before, T* after, std::int32_t* origins) {
    constexpr std::size_t LENGTH = Register<T>::LENGTH;
    std::size_t first = 0;
    const std::size_t count = sentence.candidates;
    constexpr int MANY = REGISTERS == 32 ? 8 : 4;  // best and from of each stay in registers
    for (; first + MANY * LENGTH <= count; first += MANY * LENGTH) step_block<T, MANY, false>(sentence, slot, before, first, after, origins);
    for (; first + 4 * LENGTH <= count; first += 4 * LENGTH) step_block<T, 4, false>(sentence, slot, before, first, after, origins);
    for (; first + LENGTH <= count; first += LENGTH) step_block<T, 1, false>(sentence, slot, before, first, after, origins);
    if (first < count) step_block<T, 1, true>(sentence, slot, before, first, after, origins);
}

template <typename T>
void begin(const LatticeSentence<T>& sentence, T* sums) {
    for (std::size_t k = 0; k < sentence.candidates; ++k) sums[k] = possible(sentence.start[k]) ? sentence.start[k] : NONE<T>;
}

// Calls body(sentence, thread) with a space of each thread's own.
template <typename T, typename Space, typename Body>
void each_sentence(const LatticeBatch<T>& batch, int threads, const Body& body) {
    const auto sentences = static_cast<std::int64_t>(batch.sentences);
    std::vector<Space> spaces(static_cast<std::size_t>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, sentences))));
    parallel_for(sentences, static_cast<int>(spaces.size()),
                 [&](std::int64_t b, int thread) { body(static_cast<std::size_t>(b), spaces[static_cast<std::size_t>(thread)]); });
}

// One of the n best ways to a state: through which candidate of the slot before, and which of its ways.
template <typename T>
struct Way {
    T score;
    std::int32_t candidate, rank;
};

// The best ways in order; of equally good ones the first that came.
template <typename T>
struct BestWays {
    std::size_t n;
    std::vector<Way<T>> ways;

    // Whether it is one of them.
    bool offer(const Way<T>& way) {
        if (ways.size() == n && !(way.score > ways.back().score)) return false;
        if (ways.size() == n) ways.pop_back();
        const auto place = std::upper_bound(ways.begin(), ways.end(), way, [](const Way<T>& a, const Way<T>& b) { return a.score > b.score; });
        ways.insert(place, way);
        return true;
    }
};

template <typename T>
struct End {
    T score;
    std::size_t slot;
    std::int32_t candidate, rank;
};

template <typename T>
using Ways = std::vector<std::vector<BestWays<T>>>;  // [N][K]

template <typename T>
Ways<T> ways_through(const LatticeSentence<T>& sentence, std::size_t n) {
    const std::size_t count = sentence.candidates;
    Ways<T> ways(sentence.most, std::vector<BestWays<T>>(count, BestWays<T>{n, {}}));
    for (std::size_t k = 0; k < count; ++k)
        if (possible(sentence.start[k]) && sentence.start[k] > NONE<T>) ways[0][k].offer({sentence.start[k], -1, -1});
    for (std::size_t slot = 1; slot < sentence.most; ++slot)
        for (std::size_t i = 0; i < count; ++i) {
            const T* row = sentence.edge_row(slot - 1, i);
            const auto& before = ways[slot - 1][i].ways;
            for (std::size_t j = 0; !before.empty() && j < count; ++j) {
                if (!possible(row[j]) || !(row[j] > NONE<T>)) continue;
                for (std::size_t rank = 0; rank < before.size(); ++rank)  // best first: once one is not among the best none is
                    if (!ways[slot][j].offer({before[rank].score + row[j], static_cast<std::int32_t>(i), static_cast<std::int32_t>(rank)})) break;
            }
        }
    return ways;
}

template <typename T>
std::vector<End<T>> best_ends(const LatticeSentence<T>& sentence, const Ways<T>& ways, std::size_t n) {
    std::vector<End<T>> ends;
    for (std::size_t slot = sentence.least - 1; slot < sentence.most; ++slot)
        for (std::size_t k = 0; k < sentence.candidates; ++k) {
            const T exit = sentence.exits[slot * sentence.candidates + k];
            if (!possible(exit) || !(exit > NONE<T>)) continue;
            const auto& here = ways[slot][k].ways;
            for (std::size_t rank = 0; rank < here.size(); ++rank)
                ends.push_back({here[rank].score + exit, slot, static_cast<std::int32_t>(k), static_cast<std::int32_t>(rank)});
        }
    std::stable_sort(ends.begin(), ends.end(), [](const End<T>& a, const End<T>& b) { return a.score > b.score; });
    if (ends.size() > n) ends.resize(n);
    return ends;
}

}  // namespace

template <typename T>
T best_path(const LatticeSentence<T>& sentence, LatticeSpace<T>& space, std::int64_t* path, std::size_t& length) {
    const std::size_t count = sentence.candidates, width = rounded_up(count);
    space.sums.resize(2 * width);
    space.origins.resize(sentence.most * width);
    T *now = space.sums.data(), *next = now + width, best = NONE<T>;
    std::size_t last = 0;
    length = 0;
    for (std::size_t slot = 0; slot < sentence.most; ++slot) {
        if (slot == 0) {
            begin(sentence, now);
        } else {
            step(sentence, slot - 1, now, next, space.origins.data() + slot * width);
            std::swap(now, next);
        }
        if (!sentence.ends(slot)) continue;
        const T* exits = sentence.exits + slot * count;
        for (std::size_t k = 0; k < count; ++k)
            if (possible(exits[k]) && now[k] + exits[k] > best) best = now[k] + exits[k], length = slot + 1, last = k;
    }
    for (std::size_t slot = length; slot-- > 0;) {
        path[slot] = static_cast<std::int64_t>(last);
        if (slot > 0) last = static_cast<std::size_t>(space.origins[slot * width + last]);
    }
    return best;
}

template <typename T>
void lattice_viterbi(const LatticeBatch<T>& batch, int threads, std::int64_t* path, std::int64_t* lengths, T* scores) {
    std::fill_n(path, batch.sentences * batch.slots, -1);
    each_sentence<T, LatticeSpace<T>>(batch, threads, [&](std::size_t b, LatticeSpace<T>& space) {
        std::size_t length;
        scores[b] = best_path(batch.sentence(b), space, path + b * batch.slots, length);
        lengths[b] = static_cast<std::int64_t>(length);
    });
}

template <typename T>
void lattice_n_best(const LatticeBatch<T>& batch, std::size_t n_best, int threads, std::int64_t* path, std::int64_t* lengths, T* scores) {
    std::fill_n(path, batch.sentences * n_best * batch.slots, -1);
    std::fill_n(lengths, batch.sentences * n_best, 0);
    std::fill_n(scores, batch.sentences * n_best, NONE<T>);
    struct Nothing {};
    each_sentence<T, Nothing>(batch, threads, [&](std::size_t b, Nothing&) {
        const LatticeSentence<T> sentence = batch.sentence(b);
        if (sentence.most == 0) return;
        const Ways<T> ways = ways_through(sentence, n_best);
        const std::vector<End<T>> ends = best_ends(sentence, ways, n_best);
        for (std::size_t place = 0; place < ends.size(); ++place) {
            const std::size_t row = b * n_best + place;
            End<T> at = ends[place];
            scores[row] = at.score;
            lengths[row] = static_cast<std::int64_t>(at.slot + 1);
            for (std::size_t slot = at.slot + 1; slot-- > 0;) {
                path[row * batch.slots + slot] = at.candidate;
                const Way<T>& way = ways[slot][static_cast<std::size_t>(at.candidate)].ways[static_cast<std::size_t>(at.rank)];
                at.candidate = way.candidate, at.rank = way.rank;
            }
        }
    });
}

template <typename T>
void lattice_max_marginals(const LatticeBatch<T>& batch, int threads, T* marginals) {
    std::fill_n(marginals, batch.sentences * batch.slots * batch.candidates, NONE<T>);
    each_sentence<T, LatticeSpace<T>>(batch, threads, [&](std::size_t b, LatticeSpace<T>& space) {
        const LatticeSentence<T> sentence = batch.sentence(b);
        const std::size_t count = sentence.candidates, most = sentence.most;
        if (most == 0) return;
        T* alpha = marginals + b * batch.slots * count;
        space.origins.resize(rounded_up(count));
        begin(sentence, alpha);
        for (std::size_t slot = 1; slot < most; ++slot)
            step(sentence, slot - 1, alpha + (slot - 1) * count, alpha + slot * count, space.origins.data());
        space.sums.assign(2 * count, NONE<T>);
        T *beta = space.sums.data(), *after = beta + count;  // of the slot, and of the one behind it
        for (std::size_t slot = most; slot-- > 0;) {
            for (std::size_t i = 0; i < count; ++i) {
                const T exit = sentence.exits[slot * count + i];
                T best = sentence.ends(slot) && possible(exit) ? exit : NONE<T>;
                const T* row = sentence.edge_row(slot, i);
                for (std::size_t j = 0; slot + 1 < most && j < count; ++j) {
                    const T score = row[j] + after[j];
                    best = possible(row[j]) && score > best ? score : best;
                }
                beta[i] = best;
                alpha[slot * count + i] += best;
            }
            std::swap(beta, after);
        }
    });
}

#define FEWSTEP_LATTICE(T)                                                                                                       \
    template T best_path(const LatticeSentence<T>&, LatticeSpace<T>&, std::int64_t*, std::size_t&);                              \
    template void lattice_viterbi(const LatticeBatch<T>&, int, std::int64_t*, std::int64_t*, T*);                                \
    template void lattice_n_best(const LatticeBatch<T>&, std::size_t, int, std::int64_t*, std::int64_t*, T*);                    \
    template void lattice_max_marginals(const LatticeBatch<T>&, int, T*);
FEWSTEP_LATTICE(float)
FEWSTEP_LATTICE(double)
#undef FEWSTEP_LATTICE

}  // namespace fewstep
