"""The best paths through lattices (`kernels.lattice_viterbi`), and the confidences of the tokens on them.

Legend: B batch, N slots, K candidates, n paths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels import lattice_max_marginals, lattice_n_best, lattice_viterbi
from models.lattice.scoring import Lattice


class Paths(NamedTuple):
    """The best n paths of each lattice, best first, on the CPU; scores are minus infinity where there are fewer paths."""

    candidates: Tensor
    """The candidate in each slot, [B,n,N]; -1 past the end."""
    lengths: Tensor
    """The numbers of tokens, [B,n]; 0 where there is no path."""
    scores: Tensor
    """The scores of the paths, [B,n]."""


def best_paths(lattice: Lattice, min_lengths: Tensor, max_lengths: Tensor, count: int = 1) -> Paths:
    """Return the best `count` paths of `min_lengths` [B] to `max_lengths` [B] tokens. A GPU searches single paths itself."""
    if count == 1:
        found = lattice_viterbi(*lattice, min_lengths, max_lengths, threads=torch.get_num_threads())
        return Paths(*(part[:, None].cpu() for part in found))
    return Paths(
        *lattice_n_best(*on_cpu(lattice), min_lengths.cpu(), max_lengths.cpu(), n_best=count, threads=torch.get_num_threads())
    )


def on_cpu(lattice: Lattice) -> Lattice:
    """Return lattices on the CPU."""
    return Lattice(*(part.cpu() for part in lattice))


def confidences(lattice: Lattice, min_lengths: Tensor, max_lengths: Tensor, best: Paths) -> Tensor:
    """Return the gap [B,N] in nats between the best path and the best path without its token in a slot.

    The latter has another token in the slot or ends before it. The gap is infinite if no such path exists, and past the end.
    """
    lattice, min_lengths, max_lengths = on_cpu(lattice), min_lengths.cpu(), max_lengths.cpu()
    marginals = lattice_max_marginals(*lattice, min_lengths, max_lengths, threads=torch.get_num_threads())
    path = best.candidates[:, 0]
    taken = torch.zeros_like(marginals, dtype=torch.bool).scatter(2, path.clamp(min=0)[..., None], (path >= 0)[..., None])
    rivals = torch.maximum(marginals.masked_fill(taken, -torch.inf).amax(2), _ended(lattice, min_lengths, max_lengths))
    return (best.scores[:, :1] - rivals).where((path >= 0) & (rivals > -torch.inf), torch.inf)


def _ended(lattice: Lattice, min_lengths: Tensor, max_lengths: Tensor) -> Tensor:
    """Return the score [B,N] of the best path that ends before a slot."""
    lengths = torch.arange(1, lattice.exits.size(1) + 1)
    valid = (lengths >= min_lengths[:, None]) & (lengths <= max_lengths[:, None])
    exits = lattice.exits.masked_fill(~valid[..., None], -torch.inf)
    current, best = lattice.start, [torch.full_like(lattice.start[:, 0], -torch.inf)]
    for slot in range(exits.size(1) - 1):
        best.append(torch.maximum(best[-1], (current + exits[:, slot]).amax(1)))
        current = (current[:, :, None] + lattice.edges[:, slot]).amax(1)
    return torch.stack(best, 1)
