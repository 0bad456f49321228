"""The searches of `kernels.lattice`, of which see the arguments, one sentence at a time over all paths or over pads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Path = tuple[float, tuple[int, ...]]


def score_of(start: Array, edges: Array, exits: Array, path: tuple[int, ...]) -> float:
    """start[k_0] + sum_p edges[p, k_p, k_{p+1}] + exits[T-1, k_{T-1}], added from left to right; one sentence."""
    scores = [
        start[path[0]],
        *(edges[p, i, j] for p, (i, j) in enumerate(itertools.pairwise(path))),
        exits[len(path) - 1, path[-1]],
    ]
    if any(math.isnan(score) or score == math.inf for score in scores):
        return -math.inf
    total = scores[0]
    for score in scores[1:]:
        total = total + score
    return float(total)


def all_paths(start: Array, edges: Array, exits: Array, least: int, most: int) -> list[Path]:
    """Every possible path with its score, best first, the shorter of equal ones before the longer."""
    paths = (path for words in range(least, most + 1) for path in itertools.product(range(len(start)), repeat=words) if words)
    found = [(score_of(start, edges, exits, path), path) for path in paths]
    return sorted((one for one in found if one[0] > -math.inf), key=lambda one: (-one[0], len(one[1])))


def viterbi(start: Array, edges: Array, exits: Array, least: int, most: int) -> Path:
    """alpha_p(j) = max_i alpha_{p-1}(i) + edges[p-1,i,j], with exits where a path may end; (-inf, ()) where none does."""
    start, edges, exits = (np.where(np.isnan(x) | (x == np.inf), -np.inf, x) for x in (start, edges, exits))
    alpha, best = start, (-math.inf, tuple[int, ...]())
    ways: list[list[tuple[int, ...]]] = [[(k,) for k in range(len(start))]]
    for slot in range(most):
        if slot:
            sums = alpha[:, None] + edges[slot - 1]
            origins = sums.argmax(0)
            alpha = sums.max(0)
            ways.append([(*ways[-1][origins[j]], j) for j in range(len(start))])
        if slot + 1 >= least:
            ends = alpha + exits[slot]
            if ends.max() > best[0]:
                best = (float(ends.max()), ways[-1][int(ends.argmax())])
    return best


def viterbi_with_pads(start: Array, edges: Array, exits: Array, least: int, most: int) -> float:
    """The best score when EOS and PAD are states of every slot (one slot more for the last EOS): word to EOS by its exit, EOS to
    PAD and PAD to PAD for nothing, PAD and EOS to words never, and the last slot takes EOS or PAD alone."""
    words = len(start)
    eos, pad = words, words + 1
    alpha = np.full(words + 2, -np.inf)
    alpha[:words] = start
    for slot in range(1, most + 1):
        table = np.full((words + 2, words + 2), -np.inf)
        if slot < most:
            table[:words, :words] = edges[slot - 1]
        if slot >= least:
            table[:words, eos] = exits[slot - 1]
        table[[eos, pad], pad] = 0.0
        alpha = (alpha[:, None] + table).max(0)
    return float(alpha[[eos, pad]].max())


def scan(start: Array, edges: Array, exits: Array, least: int, most: int) -> float:
    """The best score by max-plus products of prefixes, each combined from halves: the parallel form of the recurrence."""

    def product(first: int, last: int) -> Array:
        if first == last:  # the identity: 0 on the diagonal
            return np.where(np.eye(len(start), dtype=bool), 0.0, -np.inf)
        if last - first == 1:
            found: Array = edges[first]
            return found
        middle = (first + last) // 2
        left, right = product(first, middle), product(middle, last)
        joined: Array = (left[:, :, None] + right[None]).max(1)
        return joined

    return max(float((start[:, None] + product(0, slot) + exits[slot]).max()) for slot in range(least - 1, most))


def max_marginals(start: Array, edges: Array, exits: Array, least: int, most: int) -> Array:
    """[N,K] of one sentence, over all paths."""
    found = np.full(exits.shape, -np.inf)
    for score, path in all_paths(start, edges, exits, least, most):
        for slot, candidate in enumerate(path):
            found[slot, candidate] = max(found[slot, candidate], score)
    return found
