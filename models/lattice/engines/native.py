"""Lattices in native code on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from fewstep.candidates import CandidateTables
from fewstep.config.problems import Problem
from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots
from fewstep.families.lattice.config import LatticeModelConfig, LatticeSearch
from fewstep.families.lattice.decoder import NativeDecoder
from fewstep.families.lattice.paths import Lattice
from fewstep.sources import Ints
from fewstep.translation import Hypothesis
from models.common.native import native_arrays
from models.lattice.model import LatticeModel


class NativeEngine:
    """The runtime's decoder. Unless a call states the number of threads, it uses as many as torch."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder

    def problems(self, search: LatticeSearch, network: LatticeModelConfig) -> list[Problem]:
        """Return an empty list: native code can run all searches."""
        return []

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return whether `decode` needs looked-up candidates."""
        return self.decoder.needs_slots(search)

    def decode(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. Raises ValueError for a precision that native code does not support."""
        return self.decoder.search(prepared, search, threads or torch.get_num_threads())

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS."""
        return self.decoder.lattice(ids, lengths, slots, search, torch.get_num_threads())

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part, as native code measures it."""
        return self.decoder.timed(source, search, torch.get_num_threads())


def native_decoder(model: LatticeModel, tables: CandidateTables) -> NativeDecoder:
    """Return the runtime's decoder for a copy of a finished network on the CPU in float32."""
    return NativeDecoder(model.config, native_arrays(model), tables)
