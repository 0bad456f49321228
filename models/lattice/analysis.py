"""What the search changed of what its parts would have chosen, and what each part takes (Deng and Rush 2021, figures 2 and 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from models.common.at_work import at_work
from models.lattice.config import LatticeSearch
from models.lattice.decode import LatticeDecoder, part_of, part_of_sources
from models.lattice.scoring import Lattice, Slots, score_rows, score_slots, scored_states
from models.lattice.search import Paths, best_paths

PARTS = ("lookup", "encoder", "scoring", "search")


class Ranks(NamedTuple):
    """Where the words of one best path stood before the search, from 1."""

    words: list[int]
    """Of each word among the candidates of its slot, by the counts."""
    edges: list[int]
    """Of each pair of neighbours among all pairs of its two slots, by the score of the edge alone."""


def ranks(decoder: LatticeDecoder, sources: Sequence[Sequence[int]], search: LatticeSearch) -> list[Ranks | None]:
    """Of each source, none of them empty; None where no path reaches the window."""
    prepared = decoder.prepare(sources, search)
    found: list[Ranks | None] = [None] * len(sources)
    assert prepared.slots is not None
    with at_work(decoder.model) as device:
        for rows in decoder.parts(prepared.slots, device):
            slots, (source, lengths) = part_of(prepared.slots, rows, search, device), part_of_sources(prepared, rows, device)
            lattice = score_slots(decoder.model, source, lengths, slots, search, decoder.bigrams)
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


class Taken(NamedTuple):
    """What one sentence took."""

    words: int
    milliseconds: tuple[float, ...]
    """Of each of `PARTS`"""


def taken(
    decoder: LatticeDecoder, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter
) -> Taken:
    """Decode one source, not empty, part by part; a GPU is waited for after each."""

    def moment(values: Tensor) -> float:
        if values.device.type == "cuda":
            torch.cuda.synchronize(values.device)
        return clock()

    with at_work(decoder.model) as device:
        moments = [clock()]
        prepared = decoder.prepare([source], search)
        moments.append(clock())
        assert prepared.slots is not None
        slots = Slots(*(part.to(device) for part in prepared.slots))
        memories = decoder.model.encode(prepared.ids.to(device), prepared.lengths.to(device))
        moments.append(moment(memories[-1].keys))
        lattice = score_rows(decoder.model, scored_states(decoder.model, memories, slots, decoder.bigrams), slots, search)
        moments.append(moment(lattice.edges))
        paths = best_paths(lattice, slots.least, slots.most)
        words = int(paths.lengths[0, 0])
        moments.append(clock())
    return Taken(words, tuple(1000 * (end - start) for start, end in pairwise(moments)))
