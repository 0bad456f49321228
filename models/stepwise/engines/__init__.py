"""The engines of the stepwise family: native code, torch, and CTranslate2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fewstep.translation import Hypothesis
from models.common.engines import Engine
from models.stepwise.engines.ctranslate2 import CTranslate2Engine
from models.stepwise.engines.native import NativeEngine, native_decoder
from models.stepwise.engines.torch import TorchEngine

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.families.stepwise.config import StepwiseSearch
    from fewstep.families.stepwise.decoder import NativeDecoder
    from fewstep.ngram import NgramScorer
    from fewstep.sources import Ints, Sources
    from models.stepwise.ensemble import Ensemble
    from models.stepwise.model import StepwiseModel


class StepwiseEngine(Engine, Protocol):
    """An engine that decodes a batch of sources."""

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; `limits` [B] are maximum output lengths in tokens with EOS."""
        ...


def engines_for(
    model: StepwiseModel | Ensemble,
    ngram: NgramScorer | None,
    lexicon: Lexicon | None,
    *,
    frozen: bool,
    native: NativeDecoder | None = None,
) -> dict[str, StepwiseEngine]:
    """Return the engines that can decode with a network.

    Engines other than torch copy the weights, so they need a network whose weights do not change any more (`frozen`). `native` is
    the runtime's decoder of the same network, if it was loaded.
    """
    engines: dict[str, StepwiseEngine] = {"torch": TorchEngine(model, ngram, lexicon, frozen=frozen)}
    if frozen:
        engines["ctranslate2"] = CTranslate2Engine(model, lexicon)
        if next(model.parameters()).device.type == "cpu" and not model.config.needs_torch:
            engines["native"] = NativeEngine(native or native_decoder(model, ngram, lexicon))
    return engines
