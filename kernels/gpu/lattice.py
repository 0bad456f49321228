"""Counterpart of `kernels.lattice_viterbi` on a GPU: one launch for a batch.

It runs on the current stream without synchronisation, so lengths are not checked: a sentence whose window is not within its lattice
has no path.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton

    from kernels.gpu import lattice_kernels
except ImportError as error:
    raise ImportError("kernels.gpu.lattice: expected the package triton, got none; install it with `pip install triton`") from error

TILE = 4096
"""Edges that are read together."""


def viterbi(start: Tensor, edges: Tensor, exits: Tensor, min_lengths: Tensor, max_lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return path [B,N], lengths and scores [B], as `kernels.lattice_viterbi`; half precision is widened before summation."""
    sentences, slots, candidates = exits.shape
    if start.shape != (sentences, candidates) or edges.shape != (sentences, max(slots - 1, 0), candidates, candidates):
        raise ValueError(
            f"start, edges, exits: expected [B,K], [B,N-1,K,K] and [B,N,K], got {list(start.shape)}, {list(edges.shape)} and "
            f"{list(exits.shape)}"
        )
    wide = exits.dtype if exits.dtype == torch.float64 else torch.float32
    start, edges, exits = (x.detach().to(wide).contiguous() for x in (start, edges, exits))
    path = torch.full((sentences, slots), -1, device=exits.device)
    lengths = torch.zeros(sentences, dtype=torch.int64, device=exits.device)
    scores = exits.new_full((sentences,), -torch.inf)
    if exits.numel():
        alpha = torch.empty_like(exits)
        origins = torch.empty(exits.shape, dtype=torch.int32, device=exits.device)
        many = max(16, triton.next_power_of_2(candidates))
        arrays = start, edges, exits, min_lengths.contiguous(), max_lengths.contiguous(), alpha, origins, path, lengths, scores
        lattice_kernels.best_paths[(sentences,)](*arrays, slots, candidates, many=many, few=min(many, max(1, TILE // many)))
    return path, lengths, scores
