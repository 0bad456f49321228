"""The effect of the search: the ranks before it of the tokens and edges on the best path (Deng and Rush 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fewstep.families.lattice.batches import scoring_batches, select_slots, select_sources
from fewstep.families.lattice.config import LatticeSearch
from fewstep.families.lattice.paths import CPU_ROWS, Lattice, Paths
from models.lattice.decode import LatticeDecoder


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
    for rows in scoring_batches(prepared.slots, CPU_ROWS):
        slots = select_slots(prepared.slots, rows, search)
        lattice = decoder.lattice(*select_sources(prepared, rows), slots, search)
        paths = lattice.paths(slots.min_lengths, slots.max_lengths)
        for row, path_ranks in zip(rows.tolist(), _ranks(lattice, paths), strict=True):
            found[row] = path_ranks
    return found


def _ranks(lattice: Lattice, paths: Paths) -> Iterator[Ranks | None]:
    taken = paths.candidates[:, 0].clip(min=0)
    sentences, size = taken.shape
    own = lattice.edges[np.arange(sentences)[:, None], np.arange(size - 1), taken[:, :-1], taken[:, 1:]]
    pairs = lattice.edges.reshape(sentences, size - 1, lattice.edges.shape[2] * lattice.edges.shape[3])
    better = (pairs > own[..., None]).sum(2) + 1
    for candidates, edges, length in zip(taken.tolist(), better.tolist(), paths.lengths[:, 0].tolist(), strict=True):
        yield Ranks([candidate + 1 for candidate in candidates[:length]], edges[: length - 1]) if length else None
