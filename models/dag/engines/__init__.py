"""The engines of the dag family: native code and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fewstep.translation import Hypothesis
from models.common.engines import Engine
from models.dag.engines.native import NativeEngine, native_decoder
from models.dag.engines.torch import TorchEngine

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.families.dag.config import DagSearch
    from fewstep.families.dag.decoder import NativeDecoder
    from fewstep.ngram import NgramScorer
    from fewstep.sources import Sources
    from models.dag.model import DagModel
    from models.dag.search import Graph


class DagEngine(Engine, Protocol):
    """An engine that computes the graphs of a batch of sources and searches them."""

    def decode(self, prepared: Sources, search: DagSearch, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        ...

    def graph(self, prepared: Sources, search: DagSearch) -> Graph:
        """Return the graphs of sources, with as many tokens per vertex as the search needs."""
        ...


def engines_for(
    model: DagModel,
    ngram: NgramScorer | None,
    lexicon: Lexicon | None,
    *,
    frozen: bool,
    native: NativeDecoder | None = None,
) -> dict[str, DagEngine]:
    """Return the engines that can decode with a network.

    Native code copies the weights, so it needs a network on the CPU whose weights do not change any more (`frozen`). `native` is
    the runtime's decoder of the same network, if it was loaded.
    """
    engines: dict[str, DagEngine] = {"torch": TorchEngine(model, ngram, lexicon, frozen=frozen)}
    if frozen and next(model.parameters()).device.type == "cpu":
        engines["native"] = NativeEngine(native or native_decoder(model, ngram, lexicon))
    return engines
