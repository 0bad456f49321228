"""Lattices in torch, on any device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fewstep import CandidateTables
from fewstep.config.problems import Problem
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.sources import padded
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.lattice.batches import SentenceTimes, Slots, Sources, select_sources
from models.lattice.candidates import look_up
from models.lattice.hypotheses import decode_slots
from models.lattice.model import LatticeModel
from models.lattice.scoring import Lattice, score_memories, score_slots
from models.lattice.search import best_paths
from models.lattice.tables import BigramTables


class TorchEngine:
    """A network in evaluation mode and float32."""

    def __init__(self, model: LatticeModel, tables: CandidateTables | None, bigrams: BigramTables | None) -> None:
        """Hold a network. `bigrams` are tables of weights that do not change any more; None computes from the weights each time."""
        self._model, self._tables, self._bigrams = model, tables, bigrams

    def problems(self, search: LatticeSearch, network: LatticeModelConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        if search.precision == "float32":
            return []
        return [Problem(("precision",), "float32 in torch, which decodes unfinished networks and on a GPU", search.precision)]

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return True: `decode` needs a batch whose candidates were looked up."""
        return True

    def decode(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        with inference_mode(self._model) as device:
            return decode_slots(self.lattice, prepared, search, device)

    def lattice(self, source: Tensor, lengths: Tensor, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS. Call it within `inference_mode`."""
        return score_slots(self._model, source, lengths, slots, search, self._bigrams)

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part; a GPU is synchronised after each."""
        assert self._tables is not None
        with inference_mode(self._model) as device:
            moments = [clock()]
            ids, lengths = padded([source])
            looked_up = look_up(self._tables, ids, lengths - 1, search, self._model.config.max_positions - 1)
            moments.append(clock())
            slots = Slots(*(part.to(device) for part in looked_up))
            prepared = Sources(ids, lengths, slots, search)
            memories = self._model.encode(*select_sources(prepared, torch.zeros(1, dtype=torch.int64), device))
            moments.append(_synchronised(device, clock))
            lattice = score_memories(self._model, memories, slots, search, self._bigrams)
            moments.append(_synchronised(device, clock))
            tokens = int(best_paths(lattice, slots.min_lengths, slots.max_lengths).lengths[0, 0])
            moments.append(clock())
        return SentenceTimes(tokens, *(1000 * (end - start) for start, end in pairwise(moments)))


def _synchronised(device: torch.device, clock: Callable[[], float]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock()
