"""The searches of `kernels.lattice`, which documents the arguments, one sentence at a time over all paths or with padding."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Path = tuple[float, tuple[int, ...]]


def score_of(start: Array, edges: Array, exits: Array, path: tuple[int, ...]) -> float:
    """Return start[k_0] + sum_p edges[p, k_p, k_{p+1}] + exits[T-1, k_{T-1}], added from left to right, for one sentence."""
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


def all_paths(start: Array, edges: Array, exits: Array, min_length: int, max_length: int) -> list[Path]:
    """Return every possible path with its score, best first, the shorter of equal ones before the longer."""
    paths = (
        path
        for length in range(min_length, max_length + 1)
        for path in itertools.product(range(len(start)), repeat=length)
        if length
    )
    found = [(score_of(start, edges, exits, path), path) for path in paths]
    return sorted((one for one in found if one[0] > -math.inf), key=lambda one: (-one[0], len(one[1])))


def viterbi(start: Array, edges: Array, exits: Array, min_length: int, max_length: int) -> Path:
    """Return the best path by alpha_p(j) = max_i alpha_{p-1}(i) + edges[p-1,i,j], with exits where a path may end; (-inf, ()) if
    none does."""
    start, edges, exits = (np.where(np.isnan(x) | (x == np.inf), -np.inf, x) for x in (start, edges, exits))
    alpha = start
    best = (-math.inf, tuple[int, ...]())
    ways: list[list[tuple[int, ...]]] = [[(k,) for k in range(len(start))]]
    for slot in range(max_length):
        if slot:
            sums = alpha[:, None] + edges[slot - 1]
            origins = sums.argmax(0)
            alpha = sums.max(0)
            ways.append([(*ways[-1][origins[j]], j) for j in range(len(start))])
        if slot + 1 >= min_length:
            ends = alpha + exits[slot]
            if ends.max() > best[0]:
                best = (float(ends.max()), ways[-1][int(ends.argmax())])
    return best


def viterbi_with_pads(start: Array, edges: Array, exits: Array, min_length: int, max_length: int) -> float:
    """Return the best score if EOS and PAD are states of every slot (with one more slot for the last EOS).

    A token leads to EOS by its exit score, EOS to PAD and PAD to PAD for 0, PAD and EOS never to tokens; the last slot takes EOS or
    PAD only.
    """
    count = len(start)
    eos = count
    pad = count + 1
    alpha = np.full(count + 2, -np.inf)
    alpha[:count] = start
    for slot in range(1, max_length + 1):
        table = np.full((count + 2, count + 2), -np.inf)
        if slot < max_length:
            table[:count, :count] = edges[slot - 1]
        if slot >= min_length:
            table[:count, eos] = exits[slot - 1]
        table[[eos, pad], pad] = 0.0
        alpha = (alpha[:, None] + table).max(0)
    return float(alpha[[eos, pad]].max())


def scan(start: Array, edges: Array, exits: Array, min_length: int, max_length: int) -> float:
    """Return the best score by max-plus products of prefixes, each combined from halves: the parallel form of the recurrence."""

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

    return max(float((start[:, None] + product(0, slot) + exits[slot]).max()) for slot in range(min_length - 1, max_length))


def max_marginals(start: Array, edges: Array, exits: Array, min_length: int, max_length: int) -> Array:
    """Return [N,K] of one sentence, over all paths."""
    found = np.full(exits.shape, -np.inf)
    for score, path in all_paths(start, edges, exits, min_length, max_length):
        for slot, candidate in enumerate(path):
            found[slot, candidate] = max(found[slot, candidate], score)
    return found
