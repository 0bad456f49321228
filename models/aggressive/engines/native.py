"""Drafting and verification in native code on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

from fewstep.config.problems import Problem
from fewstep.families.aggressive.config import AggressiveConfig, AggressiveSearch
from fewstep.families.aggressive.decoder import NativeDecoder
from fewstep.families.aggressive.record import Drafting
from fewstep.sources import Ints, Sources
from models.aggressive.head import DraftHead
from models.aggressive.medusa import MedusaHeads
from models.aggressive.model import AggressiveModel
from models.aggressive.verifier import Autoregressive
from models.common.layers.backbone import Backbone
from models.common.native import native_arrays

if TYPE_CHECKING:
    from fewstep.shortlist import Lexicon


class NativeEngine:
    """The runtime's decoder. Unless a call states the number of threads, it uses as many as torch."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder

    def problems(self, search: AggressiveSearch, network: AggressiveConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        return list(self.decoder.unsupported(search))

    def decode(
        self,
        prepared: Sources,
        search: AggressiveSearch,
        limits: Ints,
        hints: Sequence[Sequence[int]],
        threads: int | None = None,
    ) -> Drafting:
        """Return the hypothesis of each source, as `models.aggressive.loop` finds it."""
        return self.decoder.search(prepared, search, limits, hints, threads or torch.get_num_threads())


def native_decoder(model: AggressiveModel | DraftHead | MedusaHeads, verifier: Backbone, lexicon: Lexicon | None) -> NativeDecoder:
    """Return the runtime's decoder for copies of a finished drafter and verifier on the CPU in float32."""
    config = cast(Autoregressive, verifier).config
    return NativeDecoder(model.config, native_arrays(model), model.sizes, config, native_arrays(verifier), lexicon=lexicon)
