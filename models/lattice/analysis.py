"""What the search changed of what counts and single scores would have chosen (Deng and Rush 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from models.common.inference import inference_mode
from models.lattice.config import LatticeSearch
from models.lattice.decode import LatticeDecoder, part_of, part_of_sources
from models.lattice.scoring import Lattice, Slots
from models.lattice.search import Paths, best_paths


class Ranks(NamedTuple):
    """Where the words of one best path stood before the search, from 1."""

    words: list[int]
    """Of each word among the candidates of its slot, by the counts."""
    edges: list[int]
    """Of each pair of neighbours among all pairs of its two slots, by the score of the edge alone."""


def ranks(decoder: LatticeDecoder, sources: Sequence[Sequence[int]], search: LatticeSearch) -> list[Ranks | None]:
    """Of each source, none of them empty; None where no path reaches the window."""
    prepared = decoder.looked_up(decoder.prepare(sources), search)
    found: list[Ranks | None] = [None] * len(sources)
    assert prepared.slots is not None
    with inference_mode(decoder.model) as device:
        for rows in decoder.parts(prepared.slots, device):
            slots = part_of(prepared.slots, rows, search, device)
            lattice = decoder.lattice(*part_of_sources(prepared, rows, device), slots, search)
            paths = best_paths(lattice, slots.least, slots.most)
            for row, told in zip(rows.tolist(), _told(lattice, slots, paths), strict=True):
                found[row] = told
    return found


def _told(lattice: Lattice, slots: Slots, paths: Paths) -> Iterator[Ranks | None]:
    path = paths.candidates[:, 0].to(lattice.edges.device)
    taken = path.clamp(min=0)
    batch, size = path.shape
    places = torch.arange(size - 1, device=path.device)
    own = lattice.edges[torch.arange(batch, device=path.device)[:, None], places, taken[:, :-1], taken[:, 1:]]
    better = (lattice.edges.flatten(2) > own[..., None]).sum(2) + 1
    for words, edges, length in zip(taken.tolist(), better.tolist(), paths.lengths[:, 0].tolist(), strict=True):
        yield Ranks([word + 1 for word in words[:length]], edges[: length - 1]) if length else None
