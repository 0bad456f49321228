"""The engines of the parallel family: native code and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fewstep.translation import Hypothesis
from models.common.engines import Engine
from models.parallel.engines.native import NativeEngine, native_decoder
from models.parallel.engines.torch import TorchEngine

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.families.parallel.config import ParallelSearch
    from fewstep.families.parallel.decoder import NativeDecoder
    from fewstep.families.parallel.search import Rescore
    from fewstep.ngram import NgramScorer
    from fewstep.sources import Sources
    from models.parallel.model import ParallelModel


class ParallelEngine(Engine, Protocol):
    """An engine that fills or ranks the slots of a batch of sources and searches them."""

    def decode(
        self, prepared: Sources, search: ParallelSearch, threads: int | None, rescore: Rescore | None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first. `rescore` chooses among lengths (None: the network's own scores)."""
        ...


def engines_for(
    model: ParallelModel,
    ngram: NgramScorer | None,
    lexicon: Lexicon | None,
    *,
    frozen: bool,
    native: NativeDecoder | None = None,
) -> dict[str, ParallelEngine]:
    """Return the engines that can decode with a network.

    Native code copies the weights, so it needs a network on the CPU whose weights do not change any more (`frozen`). `native` is
    the runtime's decoder of the same network, if it was loaded.
    """
    engines: dict[str, ParallelEngine] = {"torch": TorchEngine(model, ngram, lexicon, frozen=frozen)}
    if frozen and next(model.parameters()).device.type == "cpu":
        engines["native"] = NativeEngine(native or native_decoder(model, ngram, lexicon))
    return engines
