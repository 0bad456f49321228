"""Searches whose steps run on a device without waiting for the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fewstep.translation import Hypothesis
from models.common.device_batch import Inputs
from models.common.replay import Replay

STEPS_BETWEEN_CHECKS = 4
"""Steps after which the host asks what the sentences need. A step after the end of all changes nothing."""


class StepSearch(Protocol):
    """A search in buffers of fixed shapes."""

    @property
    def passes(self) -> Sequence[Callable[[], None]]:
        """Functions that take one step for every sentence that has not ended. Each also does the work of those before it."""
        ...

    @property
    def needed(self) -> Tensor:
        """The number, counted from 1, of the one in `passes` that each sentence [B] needs; 0 if it has ended. It never rises."""
        ...

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        ...

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, best first."""
        ...


class UniformSearch(ABC):
    """A search whose steps are all alike."""

    alive: Tensor
    """True at the sentences [B] that have not ended."""

    @abstractmethod
    def step(self) -> None:
        """Take one step for every sentence that has not ended."""

    @property
    def passes(self) -> list[Callable[[], None]]:
        """The one function that takes a step."""
        return [self.step]

    @property
    def needed(self) -> Tensor:
        """True, which is 1, at the sentences [B] that have not ended."""
        return self.alive


class SearchProgram:
    """A search of one size with the replays of its start and of its passes."""

    def __init__(self, search: StepSearch, inputs: Inputs, device: torch.device) -> None:
        """`inputs` are the buffers of the batches."""
        self.search, self.inputs = search, inputs
        self.begin = Replay(lambda: search.start(inputs), device, lambda: None)
        self.passes = [Replay(step, device, self.begin) for step in search.passes]

    def run(self, inputs: Inputs, sentences: int, steps: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the first `sentences` of a batch, after at most `steps` steps."""
        self.inputs.fill(inputs)
        self.begin()
        for step in self.passes:
            step.prepare()
        needed = len(self.passes)
        for number in range(1, steps + 1):
            self.passes[needed - 1]()
            if number % STEPS_BETWEEN_CHECKS == 0 and not (needed := int(self.search.needed.max())):
                break
        return self.search.outcome(sentences)
