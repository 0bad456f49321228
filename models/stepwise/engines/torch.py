"""Greedy search, beam search and sampling in torch, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from fewstep.families.stepwise.options import coupling, joint_step
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.inference import inference_mode
from models.common.precision import Precisions
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.stepwise.device.run import DeviceSearch
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel
from models.stepwise.search.beam import beam_search
from models.stepwise.search.greedy import greedy
from models.stepwise.search.sampling import sample

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class TorchEngine:
    """A network, or an ensemble, in evaluation mode."""

    def __init__(
        self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False
    ) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models, self._ngram, self._lexicon = Precisions(model, frozen=frozen), ngram, lexicon
        self._device = DeviceSearch(self._models, lexicon, ngram)

    def problems(self, search: StepwiseSearch, network: StepwiseConfig) -> list[Problem]:
        """Return the reasons why torch cannot run a search."""
        return list(self._models.problems(search.precision))

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        model = self._models[search.precision]
        order, size = model.order, networks(model)[0].sizes.target
        with inference_mode(model) as device:
            if device.type != "cpu" and self._device.supports(search):
                return self._device.decode(prepared, search, limits)
            source, lengths = source_tensors(prepared, device)
            allowed = shortlist_mask(search.shortlist, self._lexicon, source, lengths, size)
            given = (model, source, lengths, search, torch.from_numpy(limits).to(device))
            if search.strategy == "greedy":
                return greedy(*given, joint_step(order, search, self._ngram), allowed)
            if search.strategy == "beam":
                return beam_search(*given, coupling(order, search, self._ngram), allowed)
            return sample(*given, allowed)
