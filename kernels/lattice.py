"""Exact search of lattices given as tensors, on a CPU or a GPU. `fewstep.search.lattice` describes the arguments and the results.

Results have the type of the arguments, numpy or torch. Tensors on a GPU are searched there (`lattice_viterbi` only,
`kernels.gpu.lattice`, which needs triton). `kernels.reference.lattice` is the slow reference.
"""

from __future__ import annotations

from typing import Any

from fewstep.search import lattice as native
from fewstep.search.lattice import LatticePaths

__all__ = ["LatticePaths", "lattice_max_marginals", "lattice_n_best", "lattice_viterbi"]


def lattice_viterbi(
    start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any, *, threads: int | None = None
) -> LatticePaths:
    """Return the best path of each sentence. A GPU searches its own tensors; `threads` applies to the CPU."""
    if getattr(exits, "is_cuda", False):
        from kernels.gpu import lattice as gpu

        return LatticePaths(*gpu.viterbi(start, edges, exits, min_lengths, max_lengths))
    return LatticePaths(*_like(exits, native.lattice_viterbi(start, edges, exits, min_lengths, max_lengths, threads=threads)))


def lattice_n_best(
    start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any, *, n_best: int, threads: int | None = None
) -> LatticePaths:
    """Return the n best paths of each sentence."""
    found = native.lattice_n_best(start, edges, exits, min_lengths, max_lengths, n_best=n_best, threads=threads)
    return LatticePaths(*_like(exits, found))


def lattice_max_marginals(
    start: Any, edges: Any, exits: Any, min_lengths: Any, max_lengths: Any, *, threads: int | None = None
) -> Any:
    """Return [B,N,K], the score of the best path through each candidate."""
    return _like(exits, (native.lattice_max_marginals(start, edges, exits, min_lengths, max_lengths, threads=threads),))[0]


def _like(given: Any, found: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return tensors if `given` is a tensor."""
    if type(given).__module__.partition(".")[0] != "torch":
        return found
    import torch

    return tuple(torch.from_numpy(values) for values in found)
