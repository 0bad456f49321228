"""Decoding in buffers of fixed shapes: each batch is copied into the buffers, and the passes of a search work on them in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fewstep.translation import Hypothesis
from models.common import buffers
from models.common.buffers import Inputs
from models.common.replay import Replay

PASSES_BETWEEN_CHECKS = 4
"""Passes on a GPU after which the host asks whether sentences are left. A pass after the end of all changes nothing."""


class BufferedSearch(Protocol):
    """A search whose state lies in buffers of fixed shapes."""

    @property
    def passes(self) -> Sequence[Callable[[], None]]:
        """The functions that take one step for every sentence that has not ended, cheapest first: each also does the work of those
        before it."""
        ...

    @property
    def needed(self) -> Tensor:
        """The number of the function of `passes`, counted from 1, that each sentence [B] needs; 0 if it has ended. It never
        rises."""
        ...

    def start(self, inputs: Inputs) -> None:
        """Encode a batch and return to the first step."""
        ...

    def outcome(self, sentences: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of the first `sentences`, best first."""
        ...


class SearchRunner:
    """A search for batches of one size. On a GPU its start and its passes are captured as CUDA graphs."""

    def __init__(self, search: BufferedSearch, inputs: Inputs, device: torch.device) -> None:
        """`inputs` are the buffers that `search` reads."""
        self.search = search
        self.inputs = inputs
        self.begin = Replay(lambda: search.start(inputs), device, lambda: None)
        self.passes = [Replay(one, device, self.begin) for one in search.passes]
        # Reading `needed` makes the host wait for a GPU; on a CPU it costs nothing and saves the passes after the end.
        self.interval = PASSES_BETWEEN_CHECKS if buffers.captures(device) else 1

    def run(self, inputs: Inputs, sentences: int, max_passes: int) -> list[list[Hypothesis]]:
        """Return the hypotheses of the first `sentences` of a batch, after at most `max_passes` passes."""
        self.inputs.fill(inputs)
        self.begin()
        for one in self.passes:
            # A capture runs the function, which must happen before the first pass: it starts from the state after `begin`.
            one.prepare()
        needed = len(self.passes)
        for number in range(1, max_passes + 1):
            self.passes[needed - 1]()
            if number % self.interval == 0:
                needed = int(self.search.needed.max())
                if not needed:
                    break
        return self.search.outcome(sentences)
