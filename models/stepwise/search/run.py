"""Decoding of the stepwise family in torch, on any device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from fewstep.config.problems import Problem
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.families.stepwise.options import coupling, joint_step
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.buffers import Inputs, Size, empty_inputs, fill_up, inputs_for, size_for
from models.common.inference import Precisions, inference_mode, source_tensors
from models.common.replay import RunnerCache
from models.common.runner import SearchRunner
from models.common.shortlist import shortlist_mask
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel
from models.stepwise.search.beam import Beam
from models.stepwise.search.greedy import Greedy
from models.stepwise.search.sampling import random_numbers

if TYPE_CHECKING:
    from fewstep import Lexicon
    from fewstep.ngram import NgramScorer


class TorchDecoder:
    """Greedy search, beam search and sampling with a network, or with an ensemble, in evaluation mode."""

    def __init__(
        self, model: StepwiseModel | Ensemble, ngram: NgramScorer | None, lexicon: Lexicon | None, *, frozen: bool = False
    ) -> None:
        """`frozen` states that the weights do not change any more, so that there may be copies in half precision."""
        self._models = Precisions(model, frozen=frozen)
        self._ngram = ngram
        self._lexicon = lexicon
        self._device = next(model.parameters()).device
        self._runners: RunnerCache[tuple[StepwiseSearch, Size], SearchRunner] = RunnerCache(self._runner, self._device)

    def unsupported(self, search: StepwiseSearch) -> Iterator[Problem]:
        """Yield a problem for a precision that torch does not have on this device."""
        return self._models.problems(search.precision)

    def search(self, prepared: Sources, search: StepwiseSearch, limits: Ints, threads: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; `limits` [B] are maximum output lengths in tokens with EOS. Torch has
        its own number of threads."""
        model = self._models[search.precision]
        network = networks(model)[0]
        step = model.order.step_size
        max_length = int(limits.max())
        with inference_mode(model) as device:
            size = size_for(prepared, max_length, device, max_source=network.max_positions, max_slots=network.max_slots, step=step)
            allowed = shortlist_mask(search.shortlist, self._lexicon, *source_tensors(prepared, "cpu"), network.sizes.target)
            inputs = inputs_for(prepared, limits, 0, allowed, size, device)
            if search.strategy == "sample":
                inputs = inputs._replace(numbers=_numbers(prepared, search, size).to(device))
            return self._runners.call((search, size), lambda runner: runner.run(inputs, len(prepared.ids), -(-max_length // step)))

    def _runner(self, key: tuple[StepwiseSearch, Size]) -> SearchRunner:
        search, size = key
        model = self._models[search.precision]
        device = self._device
        inputs = empty_inputs(size, model.sizes.target, device, shortlists=search.shortlist is not None)
        if search.strategy == "beam":
            return SearchRunner(Beam(model, search, size, coupling(model.order, search, self._ngram)), inputs, device)
        if search.strategy == "sample":
            inputs = with_numbers(inputs, size, search.n_best)
        return SearchRunner(Greedy(model, search, size, inputs, joint_step(model.order, search, self._ngram)), inputs, device)


def with_numbers(inputs: Inputs, size: Size, samples: int) -> Inputs:
    """Return buffers that also hold a random number for each slot of each sample."""
    return inputs._replace(numbers=torch.zeros((size.sentences, size.slots, samples), device=inputs.source.device))


def _numbers(prepared: Sources, search: StepwiseSearch, size: Size) -> torch.Tensor:
    rows = [ids[:length] for ids, length in zip(prepared.ids.tolist(), prepared.lengths.tolist(), strict=True)]
    return fill_up(random_numbers(rows, search.sampling.seed, size.slots, search.n_best), size.sentences, value=0.0)
