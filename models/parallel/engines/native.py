"""Filled and ranked slots in native code on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.families.parallel.decoder import NativeDecoder
from fewstep.families.parallel.search import Rescore
from fewstep.sources import Sources
from fewstep.translation import Hypothesis
from models.common.native import native_arrays
from models.parallel.model import ParallelModel

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon


class NativeEngine:
    """The runtime's decoder. Unless a call states the number of threads, it uses as many as torch."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder

    def problems(self, search: ParallelSearch, network: ParallelConfig) -> list[Problem]:
        """Return an empty list, since native code runs every search of the family."""
        return []

    def decode(
        self, prepared: Sources, search: ParallelSearch, threads: int | None, rescore: Rescore | None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        return self.decoder.search(prepared, search, threads or torch.get_num_threads(), rescore)


def native_decoder(model: ParallelModel, ngram: NgramScorer | None, lexicon: Lexicon | None) -> NativeDecoder:
    """Return the runtime's decoder for a copy of a finished network on the CPU in float32."""
    return NativeDecoder(model.config, native_arrays(model), ngram, lexicon)
