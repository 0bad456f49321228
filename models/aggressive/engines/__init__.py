"""The engines of the aggressive family: native code and torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from models.aggressive.engines.native import NativeEngine
from models.aggressive.engines.result import Drafting
from models.aggressive.engines.torch import TorchEngine
from models.common.engines import Engine

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.families.aggressive.config import AggressiveSearch
    from fewstep.sources import Ints, Sources
    from models.aggressive.head import DraftHead
    from models.aggressive.model import AggressiveModel
    from models.common.layers.backbone import Backbone


class AggressiveEngine(Engine, Protocol):
    """An engine that drafts and verifies."""

    def decode(self, prepared: Sources, search: AggressiveSearch, limits: Ints, hints: Sequence[Sequence[int]]) -> Drafting:
        """Return the hypothesis of each source.

        `limits` [B] are maximum output lengths in tokens with EOS; `hints` are texts in which n-grams are looked up, if the search
        does so.
        """
        ...


def engines_for(
    model: AggressiveModel | DraftHead, verifier: Backbone, lexicon: Lexicon | None, *, frozen: bool
) -> dict[str, AggressiveEngine]:
    """Return the engines that can decode with a drafter and a verifier.

    Native code copies the weights, so it needs networks on the CPU whose weights do not change any more (`frozen`).
    """
    engines: dict[str, AggressiveEngine] = {"torch": TorchEngine(model, verifier, lexicon)}
    if frozen and next(model.parameters()).device.type == "cpu":
        engines["native"] = NativeEngine(model, verifier, lexicon)
    return engines
