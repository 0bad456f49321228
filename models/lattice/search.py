"""Lattices that torch has scored, on any device."""

from __future__ import annotations

from typing import NamedTuple

import torch

from fewstep.families.lattice.paths import Lattice as Arrays
from fewstep.families.lattice.paths import Paths
from fewstep.sources import Ints
from kernels import lattice_viterbi
from models.lattice.scoring import LatticeScores


class TorchLattice(NamedTuple):
    """A batch of lattices as tensors. A GPU searches single paths itself; everything else is searched on the CPU."""

    scores: LatticeScores

    @property
    def has_margins(self) -> bool:
        """Whether the lattices are on the CPU, where a second path costs little."""
        return self.scores.exits.device.type == "cpu"

    def paths(self, min_lengths: Ints, max_lengths: Ints, count: int, threads: int) -> Paths:
        """Return the best `count` paths of `min_lengths` [B] to `max_lengths` [B] tokens."""
        if count > 1 or self.has_margins:
            return self.arrays().paths(min_lengths, max_lengths, count, threads)
        window = (torch.from_numpy(part).to(self.scores.exits.device) for part in (min_lengths, max_lengths))
        return Paths(*(part[:, None].cpu().numpy() for part in lattice_viterbi(*self.scores, *window)))

    def arrays(self) -> Arrays:
        """Return the scores as arrays; on the CPU they share the memory of the tensors."""
        return Arrays(*(part.cpu().numpy() for part in self.scores))
