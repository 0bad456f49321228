"""Decoding with a loaded or a living network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep import CandidateTables
from models.common.inference import inference_mode, score_pairs
from models.common.search import SystemParts, check_search
from models.common.sources import gather
from models.family import Hypothesis
from models.lattice.config import LatticeSearch
from models.lattice.hypotheses import hypotheses
from models.lattice.lookup import first_words, look_up
from models.lattice.loss import log_probability
from models.lattice.model import LatticeModel
from models.lattice.scoring import Lattice, Slots, score_memories, score_slots
from models.lattice.search import best_paths
from models.lattice.tables import BigramTables
from models.training.batch import Ints

CPU_ROWS, GPU_ROWS = 2**14, 2**18
"""Candidates scored at a time, unless one sentence alone has more."""


class Sources(NamedTuple):
    """A batch of sources."""

    ids: Ints
    """[B,S] with EOS"""
    lengths: Ints
    """[B] with EOS"""
    slots: Slots | None
    """What counts propose for `search`"""
    search: LatticeSearch | None


class Taken(NamedTuple):
    """What one sentence took, in milliseconds."""

    words: int
    """Of its translation"""
    lookup: float
    encoder: float
    scoring: float
    search: float


def _moment(device: torch.device, clock: Callable[[], float]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock()


def part_of(slots: Slots, rows: Tensor, search: LatticeSearch, device: torch.device) -> Slots:
    """Some sentences' slots, no more than the longest of them has."""
    size = int(slots.most[rows].max()) + (1 if search.normalizer == "local" else 0)
    mine = slots.token_ids[rows, :size], slots.log_probs[rows, :size], slots.least[rows], slots.most[rows]
    return Slots(*(part.to(device) for part in mine))


def part_of_sources(prepared: Sources, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Some sources and their lengths."""
    lengths = torch.from_numpy(prepared.lengths)[rows]
    return torch.from_numpy(prepared.ids)[rows, : int(lengths.max())].to(device), lengths.to(device)


class LatticeDecoder:
    """A network at work, in evaluation mode and float32, with the tables that propose its candidates."""

    def __init__(self, model: LatticeModel, tables: CandidateTables | None = None, bigrams: BigramTables | None = None) -> None:
        """Without `tables` it scores, but does not decode. `bigrams` are those of a network that does not change any more."""
        self.model, self.tables, self.bigrams = model, tables, bigrams

    def prepare(self, sources: Sequence[Sequence[int]], search: LatticeSearch | None = None) -> Sources:
        """Sources without EOS as one batch, looked up for `search`. Raises ValueError for one that is longer than the network's
        `max_positions`."""
        _, ids, lengths = gather(sources, self._longest)
        prepared = Sources(ids, lengths, None, None)
        return prepared if search is None or not sources else self.looked_up(prepared, search)

    def decode(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        """For each source its hypotheses, best first; an empty one for an empty source.

        A sentence whose window no path reaches, for a slot has no candidate (its words were never linked), is searched once more
        with paths that may be shorter; where there is none either, the hypothesis is empty and scores minus infinity. Raises
        ValueError for a search with problems (`LatticeSearch.problems`), for a precision that the machine does not support, and if
        the decoder has no tables.
        """
        check_search(search, self.model.config, SystemParts(tables=self.tables is not None))
        if len(prepared.ids) == 0:
            return []
        if search.strategy == "lookup":
            return first_words(self._tables, prepared.ids, prepared.lengths - 1, self._longest)
        return self._decoded(prepared, search)

    def _decoded(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        slots = self.looked_up(prepared, search).slots
        assert slots is not None
        found = [[Hypothesis([], 0.0, 0)] for _ in prepared.ids]
        with inference_mode(self.model) as device:
            for rows in self.parts(slots, device):
                for row, ranked in zip(rows.tolist(), self._search(prepared, slots, rows, search, device), strict=True):
                    found[row] = ranked
        return found

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """See `models.family.Decoder.score`: of the bigrams that lattices are scored with, over the whole vocabulary."""
        return score_pairs(self.model, log_probability, sources, targets, self._longest)

    def looked_up(self, prepared: Sources, search: LatticeSearch) -> Sources:
        """The same with what counts propose for `search`, unless it is there."""
        if search.strategy == "lookup" or search == prepared.search:
            return prepared
        slots = look_up(self._tables, prepared.ids, prepared.lengths - 1, search, self._longest)
        return prepared._replace(slots=slots, search=search)

    def parts(self, slots: Slots, device: torch.device) -> Iterator[Tensor]:
        """Sentences that are scored together: of about equal length, and with no more rows than are held at a time."""
        order = slots.most.argsort(stable=True)
        order = order[slots.most[order] > 0]
        limit = (CPU_ROWS if device.type == "cpu" else GPU_ROWS) // slots.token_ids.size(2)
        while len(order):
            sizes = slots.most[order] * torch.arange(1, len(order) + 1)
            count = max(1, int((sizes <= limit).sum()))
            yield order[:count]
            order = order[count:]

    def _search(
        self, prepared: Sources, slots: Slots, rows: Tensor, search: LatticeSearch, device: torch.device
    ) -> list[list[Hypothesis]]:
        mine = part_of(slots, rows, search, device)
        lattice = self.lattice(*part_of_sources(prepared, rows, device), mine, search)
        # On a CPU one path more costs little and tells how sure the best is; a GPU seeks the best alone.
        count = max(2, search.n_best) if device.type == "cpu" else search.n_best
        paths = best_paths(lattice, mine.least, mine.most, count)
        if not bool(paths.lengths[:, 0].all()):
            shortest = torch.where(paths.lengths[:, 0] == 0, 1, mine.least.cpu())
            mine = mine._replace(least=shortest.to(device))
            paths = best_paths(lattice, mine.least, mine.most, count)
        return hypotheses(lattice, mine, paths, search)

    def lattice(self, source: Tensor, lengths: Tensor, slots: Slots, search: LatticeSearch) -> Lattice:
        """The lattices of sources [B,S] with EOS, on the network's device; call with the network at work. Raises ValueError for
        another precision than float32."""
        if search.precision != "float32":
            raise ValueError(
                f"precision: expected float32 for a network that is not decoded natively on a CPU, got {search.precision}"
            )
        return score_slots(self.model, source, lengths, slots, search, self.bigrams)

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> Taken:
        """Decode one source, not empty, part by part; a GPU is waited for after each."""
        with inference_mode(self.model) as device:
            moments = [clock()]
            prepared = self.prepare([source], search)
            moments.append(clock())
            assert prepared.slots is not None
            slots = Slots(*(part.to(device) for part in prepared.slots))
            rows = torch.zeros(1, dtype=torch.int64)
            memories = self.model.encode(*part_of_sources(prepared, rows, device))
            moments.append(_moment(device, clock))
            lattice = score_memories(self.model, memories, slots, search, self.bigrams)
            moments.append(_moment(device, clock))
            paths = best_paths(lattice, slots.least, slots.most)
            words = int(paths.lengths[0, 0])
            moments.append(clock())
        return Taken(words, *(1000 * (end - start) for start, end in pairwise(moments)))

    @property
    def _tables(self) -> CandidateTables:
        """Raises ValueError where there are none."""
        if self.tables is None:
            raise ValueError("tables: expected candidate tables to decode with, got none; give them to the decoder")
        return self.tables

    @property
    def _longest(self) -> int:
        """Longest sources and targets, in tokens without EOS."""
        return self.model.config.max_positions - 1
