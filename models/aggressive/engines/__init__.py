"""The engines of the aggressive family: native code and torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from fewstep.families.aggressive.record import Drafting
from models.aggressive.engines.native import NativeEngine, native_decoder
from models.aggressive.engines.torch import TorchEngine
from models.aggressive.verifier import Autoregressive
from models.common.engines import Engine

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.families.aggressive.config import AggressiveSearch
    from fewstep.families.aggressive.decoder import NativeDecoder
    from fewstep.sources import Ints, Sources
    from models.aggressive.head import DraftHead
    from models.aggressive.medusa import MedusaHeads
    from models.aggressive.model import AggressiveModel
    from models.common.layers.backbone import Backbone


class AggressiveEngine(Engine, Protocol):
    """An engine that drafts and verifies."""

    def decode(
        self,
        prepared: Sources,
        search: AggressiveSearch,
        limits: Ints,
        hints: Sequence[Sequence[int]],
        threads: int | None = None,
    ) -> Drafting:
        """Return the hypothesis of each source.

        `limits` [B] are maximum output lengths in tokens with EOS; `hints` are texts in which n-grams are looked up, if the search
        does so.
        """
        ...


def engines_for(
    model: AggressiveModel | DraftHead | MedusaHeads,
    verifier: Backbone,
    lexicon: Lexicon | None,
    *,
    frozen: bool,
    native: NativeDecoder | None = None,
) -> dict[str, AggressiveEngine]:
    """Return the engines that can decode with a drafter and a verifier.

    Native code copies the weights, so it needs networks on the CPU whose weights do not change any more (`frozen`), and a verifier
    of which it has all parts. `native` is the runtime's decoder of the same networks, if it was loaded.
    """
    engines: dict[str, AggressiveEngine] = {"torch": TorchEngine(model, verifier, lexicon, frozen=frozen)}
    on_cpu = next(model.parameters()).device.type == "cpu"
    if frozen and on_cpu and not cast(Autoregressive, verifier).config.needs_torch:
        engines["native"] = NativeEngine(native or native_decoder(model, verifier, lexicon))
    return engines
