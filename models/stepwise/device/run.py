"""The loop of a search whose steps run on a device without waiting for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.sources import Ints, Sources
from fewstep.translation import Hypothesis
from models.common.device_batch import Inputs, Size, buffers, inputs_for, size_for
from models.common.replay import Programs, Replay
from models.common.shortlist import shortlist_mask
from models.common.sources import source_tensors
from models.stepwise.device.beam import Beam
from models.stepwise.device.greedy import Greedy
from models.stepwise.ensemble import Ensemble, networks
from models.stepwise.model import StepwiseModel

if TYPE_CHECKING:
    from fewstep import Lexicon

STEPS_BETWEEN_CHECKS = 4
"""Steps after which the host asks whether all sentences have ended. A step after the end of all changes nothing."""


class _Search(Protocol):
    """A search in buffers of fixed shapes."""

    alive: Tensor
    """The sentences that have not ended [B]."""

    def start(self, inputs: Inputs) -> None: ...

    def step(self) -> None: ...

    def outcome(self, sentences: int) -> list[list[Hypothesis]]: ...


class _Program:
    """A search of one size with the replays of its start and of its step."""

    def __init__(self, search: _Search, inputs: Inputs, device: torch.device) -> None:
        self.search, self.inputs = search, inputs
        self.begin = Replay(lambda: search.start(inputs), device, lambda: None)
        self.step = Replay(search.step, device, self.begin)

    def run(self, inputs: Inputs, sentences: int, steps: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the first `sentences` of a batch, after at most `steps` steps."""
        self.inputs.fill(inputs)
        self.begin()
        for number in range(1, steps + 1):
            self.step()
            if number % STEPS_BETWEEN_CHECKS == 0 and not bool(self.search.alive.any()):
                break
        return self.search.outcome(sentences)


class DeviceSearch:
    """Greedy and beam search of a network, or of an ensemble, on its device."""

    def __init__(self, model: StepwiseModel | Ensemble, lexicon: Lexicon | None) -> None:
        self._model, self._lexicon = model, lexicon
        self._programs: Programs[tuple[StepwiseSearch, Size], _Program] = Programs(self._program)

    def supports(self, search: StepwiseSearch) -> bool:
        """Return whether a search has a program: greedy and beam search that rank slots independently and exactly."""
        return search.strategy in ("greedy", "beam") and not search.chooses_jointly and search.selection == "exact"

    def decode(self, prepared: Sources, search: StepwiseSearch, limits: Ints) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; `limits` [B] are maximum output lengths in tokens with EOS."""
        model, step = networks(self._model)[0], self._model.order.step_size
        size = size_for(prepared, int(limits.max()), max_source=model.max_positions, max_slots=model.max_slots, step=step)
        source, lengths = source_tensors(prepared, "cpu")
        allowed = shortlist_mask(search.shortlist, self._lexicon, source, lengths, model.sizes.target)
        inputs = inputs_for(prepared, limits, 0, allowed, size, self._device)
        return self._programs[search, size].run(inputs, len(prepared.ids), -(-int(limits.max()) // step))

    @property
    def _device(self) -> torch.device:
        return next(self._model.parameters()).device

    def _program(self, key: tuple[StepwiseSearch, Size]) -> _Program:
        search, size = key
        kind = Greedy if search.strategy == "greedy" else Beam
        inputs = buffers(size, self._model.sizes.target, self._device, shortlists=search.shortlist is not None)
        return _Program(kind(self._model, search, size), inputs, self._device)
