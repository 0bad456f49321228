"""The best paths through lattices (`kernels.lattice_viterbi`), and what each word on them is worth.

Legend: B batch, N slots, K candidates, n paths.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernels import lattice_max_marginals, lattice_n_best, lattice_viterbi
from models.lattice.scoring import Lattice


class Paths(NamedTuple):
    """The best n paths of each lattice, best first, on the CPU; scores are minus infinity where there are no more."""

    candidates: Tensor
    """[B,n,N] the candidate taken in each slot; -1 past the end"""
    lengths: Tensor
    """[B,n] words; 0 where there is no path"""
    scores: Tensor
    """[B,n]"""


def best_paths(lattice: Lattice, least: Tensor, most: Tensor, count: int = 1) -> Paths:
    """The best `count` paths of `least` [B] to `most` [B] words. The best one alone of lattices on a GPU is sought there."""
    if count == 1:
        found = lattice_viterbi(*lattice, least, most, threads=torch.get_num_threads())
        return Paths(*(part[:, None].cpu() for part in found))
    return Paths(*lattice_n_best(*on_cpu(lattice), least.cpu(), most.cpu(), n_best=count, threads=torch.get_num_threads()))


def on_cpu(lattice: Lattice) -> Lattice:
    """The same lattices, where the CPU can search them."""
    return Lattice(*(part.cpu() for part in lattice))


def confidences(lattice: Lattice, least: Tensor, most: Tensor, best: Paths) -> Tensor:
    """[B,N]: by how much, in nats, each word of the best path beats the best path that has another word in its slot, or none;
    infinity where there is no such path, and past the end."""
    lattice, least, most = on_cpu(lattice), least.cpu(), most.cpu()
    marginals = lattice_max_marginals(*lattice, least, most, threads=torch.get_num_threads())
    path = best.candidates[:, 0]
    taken = torch.zeros_like(marginals, dtype=torch.bool).scatter(2, path.clamp(min=0)[..., None], (path >= 0)[..., None])
    rivals = torch.maximum(marginals.masked_fill(taken, -torch.inf).amax(2), _ended(lattice, least, most))
    return (best.scores[:, :1] - rivals).where((path >= 0) & (rivals > -torch.inf), torch.inf)


def _ended(lattice: Lattice, least: Tensor, most: Tensor) -> Tensor:
    """[B,N]: the score of the best path that has no word in a slot, for it ends before it."""
    words = torch.arange(1, lattice.exits.size(1) + 1)
    exits = lattice.exits.masked_fill(~((words >= least[:, None]) & (words <= most[:, None]))[..., None], -torch.inf)
    current, best = lattice.start, [torch.full_like(lattice.start[:, 0], -torch.inf)]
    for slot in range(exits.size(1) - 1):
        best.append(torch.maximum(best[-1], (current + exits[:, slot]).amax(1)))
        current = (current[:, :, None] + lattice.edges[:, slot]).amax(1)
    return torch.stack(best, 1)
