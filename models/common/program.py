"""Searches whose steps run on a device without waiting for the host."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fewstep.translation import Hypothesis
from models.common.device_batch import Inputs
from models.common.replay import Replay

STEPS_BETWEEN_CHECKS = 4
"""Steps after which the host asks whether all sentences have ended. A step after the end of all changes nothing."""


class StepSearch(Protocol):
    """A search in buffers of fixed shapes."""

    alive: Tensor
    """The sentences that have not ended [B]."""

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        ...

    def step(self) -> None:
        """Take one step for every sentence that has not ended."""
        ...

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, best first."""
        ...


class SearchProgram:
    """A search of one size with the replays of its start and of its step."""

    def __init__(self, search: StepSearch, inputs: Inputs, device: torch.device) -> None:
        """`inputs` are the buffers of the batches."""
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
