"""The engines of the lattice family: native code and torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from fewstep.translation import Hypothesis
from models.common.engines import Engine
from models.lattice.engines.native import NativeEngine
from models.lattice.engines.torch import TorchEngine

if TYPE_CHECKING:
    from torch import Tensor

    from fewstep import CandidateTables
    from fewstep.families.lattice.config import LatticeSearch
    from models.lattice.batches import SentenceTimes, Slots, Sources
    from models.lattice.model import LatticeModel
    from models.lattice.scoring import Lattice
    from models.lattice.tables import BigramTables


class LatticeEngine(Engine, Protocol):
    """An engine that scores and searches the lattices of a batch of sources."""

    def needs_slots(self, search: LatticeSearch) -> bool:
        """Return whether `decode` needs a batch whose candidates were looked up."""
        ...

    def decode(self, prepared: Sources, search: LatticeSearch) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        ...

    def lattice(self, source: Tensor, lengths: Tensor, slots: Slots, search: LatticeSearch) -> Lattice:
        """Return the lattices of sources [B,S] with EOS. Call it within `inference_mode`."""
        ...

    def timed(self, source: Sequence[int], search: LatticeSearch, clock: Callable[[], float] = time.perf_counter) -> SentenceTimes:
        """Decode one non-empty source and return the time of each part."""
        ...


def engines_for(
    model: LatticeModel, tables: CandidateTables | None, bigrams: BigramTables | None, *, frozen: bool
) -> dict[str, LatticeEngine]:
    """Return the engines that can decode with a network.

    Native code copies the weights, so it needs a network on the CPU whose weights do not change any more (`frozen`).
    """
    engines: dict[str, LatticeEngine] = {"torch": TorchEngine(model, tables, bigrams)}
    if frozen and tables is not None and next(model.parameters()).device.type == "cpu":
        engines["native"] = NativeEngine(model, tables)
    return engines
