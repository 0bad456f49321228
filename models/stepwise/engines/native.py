"""Greedy and beam search in native code on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.decoder import NativeDecoder
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.native import native_arrays
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer
    from fewstep.shortlist import Lexicon


class NativeEngine:
    """The runtime's decoder. Unless a call states the number of threads, it uses as many as torch."""

    def __init__(self, decoder: NativeDecoder) -> None:
        self.decoder = decoder

    def problems(self, search: StepwiseSearch, network: StepwiseConfig) -> list[Problem]:
        """Return the reasons why native code cannot run a search."""
        return list(self.decoder.unsupported(search))

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Raises ValueError for a precision that native code does not support.
        """
        return self.decoder.search(prepared, search, limits, threads or torch.get_num_threads())


def native_decoder(model: StepwiseModel | Ensemble, ngram: NgramScorer | None, lexicon: Lexicon | None) -> NativeDecoder:
    """Return the runtime's decoder for copies of finished networks on the CPU in float32."""
    return NativeDecoder(model.config, [native_arrays(member) for member in networks(model)], ngram, lexicon)
