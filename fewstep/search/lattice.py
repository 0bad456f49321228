"""Exact search of lattices (Deng and Rush 2021): N slots of K candidates, with a score for each pair of adjacent candidates.

A path of T tokens takes one candidate of each of the slots 0 to T - 1 and scores

    start[k_0] + sum over p of edges[p, k_p, k_{p+1}] + exits[T-1, k_{T-1}]          min_length <= T <= max_length

so that variable lengths need neither padding nor states for EOS. All functions take, for B sentences,

    start [B,K]               score of each candidate as the first token
    edges [B,N-1,K,K]         edges[b,p,i,j]: from candidate i of slot p to candidate j of slot p + 1
    exits [B,N,K]             score of ending right after each candidate (log P(EOS))
    min_lengths, max_lengths [B] int64   tokens without EOS, at most N; both 0 for an empty sentence

in float32 or float64, all of one type, in which they are summed. Minus infinity, NaN and plus infinity are impossible. Cells beyond
a sentence's longest path are not read. Raises TypeError and ValueError for arrays of other types or shapes and for a window of
lengths outside the lattice. Results do not depend on `threads`.

`kernels.reference.lattice` is the slow reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fewstep.native import fewstep_native


class LatticePaths(NamedTuple):
    """The best path of each sentence, or, with one more axis n after the first, its n best paths, best first."""

    path: Any
    """[B,N] int64, the candidate in each slot, -1 past the end; all -1 if no path is possible."""
    lengths: Any
    """[B] int64, the number of tokens; 0 if no path is possible."""
    scores: Any
    """[B] the score of the path; minus infinity if no path is possible."""


def lattice_viterbi(
    start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any, *, threads: int | None = None
) -> LatticePaths:
    """Return the best path of each sentence, in O(N K^2).

    Among equal paths the shortest wins, then the one whose candidate comes first where they differ, seen from the end. `threads` is
    the number of sentences searched at the same time (None: one).
    """
    arrays = _arrays(start, edges, exits, min_lengths, max_lengths)
    sentences, slots, _ = arrays[2].shape
    found = np.empty((sentences, slots), np.int64), np.empty(sentences, np.int64), np.empty(sentences, arrays[2].dtype)
    fewstep_native.lattice_viterbi(*arrays, *found, threads=threads or 1)
    return LatticePaths(*found)


def lattice_n_best(
    start: Any,
    edges: Any,
    exits: Any,
    min_lengths: Any,
    max_lengths: Any,
    *,
    n_best: int,
    threads: int | None = None,
) -> LatticePaths:
    """Return the n best paths of each sentence: path [B,n,N], lengths and scores [B,n]; missing paths are rows without a path."""
    if n_best < 1:
        raise ValueError(f"n_best: expected at least 1, got {n_best}")
    arrays = _arrays(start, edges, exits, min_lengths, max_lengths)
    sentences, slots, _ = arrays[2].shape
    rows = (sentences, n_best)
    found = np.empty((*rows, slots), np.int64), np.empty(rows, np.int64), np.empty(rows, arrays[2].dtype)
    fewstep_native.lattice_n_best(*arrays, *found, threads=threads or 1)
    return LatticePaths(*found)


def lattice_max_marginals(
    start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any, *, threads: int | None = None
) -> Any:
    """Return [B,N,K], the score of the best path through each candidate; minus infinity if no path is possible, and past the
    longest path.

    The confidence of a token is the gap between the best path's score and the highest one of the other candidates of its slot.
    """
    arrays = _arrays(start, edges, exits, min_lengths, max_lengths)
    found = np.empty(arrays[2].shape, arrays[2].dtype)
    fewstep_native.lattice_max_marginals(*arrays, found, threads=threads or 1)
    return found


def _arrays(start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return contiguous numpy arrays that share the memory of the arguments if possible."""
    floats = ("float32", "float64")
    start, edges = _array("start", start, floats, "[B,K]"), _array("edges", edges, floats, "[B,N-1,K,K]")
    exits = _array("exits", exits, floats, "[B,N,K]")
    if not start.dtype == edges.dtype == exits.dtype:
        raise TypeError(f"start, edges, exits: expected one type, got {start.dtype}, {edges.dtype}, {exits.dtype}")
    lengths = _array("min_lengths", min_lengths, ("int64",), "[B]"), _array("max_lengths", max_lengths, ("int64",), "[B]")
    return start, edges, exits, *lengths


def _array(name: str, values: Any, dtypes: tuple[str, ...], shape: str) -> Any:
    try:
        array = np.asarray(values)
    except (TypeError, RuntimeError) as error:  # a tensor of another device or type, or one that needs a gradient
        raise TypeError(f"{name}: expected an array or a detached tensor on the CPU of shape {shape}, got: {error}") from error
    if array.dtype.name not in dtypes:
        raise TypeError(f"{name}: expected {' or '.join(dtypes)} {shape}, got {array.dtype}; convert it")
    if array.ndim != shape.count(",") + 1:
        raise ValueError(f"{name}: expected {shape}, got the shape {array.shape}")
    return np.ascontiguousarray(array)
