"""The effect of the search: the ranks before it of the tokens and edges on the best path (Deng and Rush 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from fewstep.families.lattice.config import LatticeSearch
from models.common.inference import inference_mode
from models.lattice.batches import scoring_batches, select_slots, select_sources
from models.lattice.decode import LatticeDecoder
from models.lattice.scoring import Lattice
from models.lattice.search import Paths, best_paths


class Ranks(NamedTuple):
    """The ranks, from 1, along one best path."""

    tokens: list[int]
    """The rank of each token among the candidates of its slot, by the counts."""
    edges: list[int]
    """The rank of each pair of adjacent tokens among all pairs of its two slots, by the score of the edge alone."""


def ranks(decoder: LatticeDecoder, sources: Sequence[Sequence[int]], search: LatticeSearch) -> list[Ranks | None]:
    """Return the ranks of each source, or None if no path reaches the length window. No source may be empty."""
    prepared = decoder.looked_up(decoder.prepare(sources), search)
    found: list[Ranks | None] = [None] * len(sources)
    assert prepared.slots is not None
    with inference_mode(decoder.model) as device:
        for rows in scoring_batches(prepared.slots, device):
            slots = select_slots(prepared.slots, rows, search, device)
            lattice = decoder.lattice(*select_sources(prepared, rows, device), slots, search)
            paths = best_paths(lattice, slots.min_lengths, slots.max_lengths)
            for row, path_ranks in zip(rows.tolist(), _ranks(lattice, paths), strict=True):
                found[row] = path_ranks
    return found


def _ranks(lattice: Lattice, paths: Paths) -> Iterator[Ranks | None]:
    path = paths.candidates[:, 0].to(lattice.edges.device)
    taken = path.clamp(min=0)
    batch, size = path.shape
    slots = torch.arange(size - 1, device=path.device)
    own = lattice.edges[torch.arange(batch, device=path.device)[:, None], slots, taken[:, :-1], taken[:, 1:]]
    better = (lattice.edges.flatten(2) > own[..., None]).sum(2) + 1
    for candidates, edges, length in zip(taken.tolist(), better.tolist(), paths.lengths[:, 0].tolist(), strict=True):
        yield Ranks([candidate + 1 for candidate in candidates[:length]], edges[: length - 1]) if length else None
