"""The engines of the lattice family: native code and torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from fewstep.translation import Hypothesis
from models.common.engines import Engine
from models.lattice.engines.native import NativeEngine, native_decoder
from models.lattice.engines.torch import TorchEngine

if TYPE_CHECKING:
    from fewstep.candidates import CandidateTables
    from fewstep.families.lattice.batches import LatticeSources, SentenceTimes, Slots
    from fewstep.families.lattice.config import LatticeSearch
    from fewstep.families.lattice.decoder import NativeDecoder
    from fewstep.families.lattice.paths import ScoredLattice
    from fewstep.sources import Ints
    from models.lattice.model import LatticeModel
    from models.lattice.tables import BigramTables


class LatticeEngine(Engine, Protocol):
    """An engine that scores and searches the lattices of a batch of sources."""

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return whether `decode` needs a batch whose candidates were looked up."""
        ...

    def decode(self, prepared: LatticeSources, search: LatticeSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        ...

    def lattice(self, ids: Ints, lengths: Ints, slots: Slots, search: LatticeSearch) -> ScoredLattice:
        """Return the lattices of sources [B,S] with EOS."""
        ...

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part."""
        ...


def engines_for(
    model: LatticeModel,
    tables: CandidateTables | None,
    bigrams: BigramTables | None,
    *,
    frozen: bool,
    native: NativeDecoder | None = None,
) -> dict[str, LatticeEngine]:
    """Return the engines that can decode with a network.

    Native code copies the weights, so it needs a network on the CPU whose weights do not change any more (`frozen`). `native` is
    the runtime's decoder of the same network, if it was loaded.
    """
    engines: dict[str, LatticeEngine] = {"torch": TorchEngine(model, tables, bigrams)}
    if frozen and tables is not None and next(model.parameters()).device.type == "cpu":
        engines["native"] = NativeEngine(native or native_decoder(model, tables))
    return engines
