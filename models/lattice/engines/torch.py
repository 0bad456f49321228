"""Lattices in torch, on any device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch

from fewstep.candidates import CandidateTables
from fewstep.config.problems import Problem
from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots, look_up
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.lattice.paths import CPU_ROWS, decode_slots
from fewstep.sources import Ints, padded
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.lattice.batches import GPU_ROWS, slot_tensors
from models.lattice.device import DeviceScoring
from models.lattice.model import LatticeModel
from models.lattice.scoring import score_memories, score_slots
from models.lattice.search import DeviceLattice
from models.lattice.tables import BigramTables, Scorers


class TorchEngine:
    """A network in evaluation mode."""

    def __init__(self, model: LatticeModel, tables: CandidateTables | None, bigrams: BigramTables | None) -> None:
        """Hold a network. `bigrams` are tables of weights that do not change any more; None computes from the weights each time."""
        self._scorers, self._tables = Scorers(model, bigrams), tables
        self._device = DeviceScoring(self._scorers)

    def problems(self, search: LatticeSearch, network: LatticeModelConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        return list(self._scorers.problems(search.precision))

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return True: `decode` needs a batch whose candidates were looked up."""
        return True

    def decode(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        model, _ = self._scorers[search.precision]
        on_cpu = model.target_embedding.weight.device.type == "cpu"
        max_rows = CPU_ROWS if on_cpu else GPU_ROWS

        def score(ids: Ints, lengths: Ints, slots: Slots) -> DeviceLattice:
            if on_cpu or not self._device.supports(search, slots):
                return self.lattice(ids, lengths, slots, search)
            with inference_mode(model):
                return DeviceLattice(self._device.lattice(ids, lengths, slots, search))

        return decode_slots(score, prepared, search, max_rows=max_rows, threads=threads or torch.get_num_threads())

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> DeviceLattice:
        """Return the lattices of sources [B,S] with EOS."""
        model, bigrams = self._scorers[search.precision]
        with inference_mode(model) as device:
            source, sizes = torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)
            return DeviceLattice(score_slots(model, source, sizes, slot_tensors(slots, device), search, bigrams))

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part; a GPU is synchronised after each."""
        assert self._tables is not None
        threads, (model, bigrams) = torch.get_num_threads(), self._scorers[search.precision]
        with inference_mode(model) as device:
            moments = [clock()]
            ids, lengths = padded([source])
            slots = look_up(self._tables, ids, lengths - 1, search, model.config.max_positions - 1, threads)
            moments.append(clock())
            tensors = slot_tensors(slots, device)
            memories = model.encode(*(torch.from_numpy(part).to(device) for part in (ids, lengths)))
            moments.append(_synchronised(device, clock))
            lattice = DeviceLattice(score_memories(model, memories, tensors, search, bigrams))
            moments.append(_synchronised(device, clock))
            tokens = int(lattice.paths(slots.min_lengths, slots.max_lengths, 1, threads).lengths[0, 0])
            moments.append(clock())
        return SentenceTimes(tokens, *(1000 * (end - start) for start, end in pairwise(moments)))


def _synchronised(device: torch.device, clock: Callable[[], float]) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock()
