"""The size of the passes of an update, which the memory of the device limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.common.inference import MEMORY_ERRORS
from models.training.batch import Batch, Share


class TrainingMemoryError(RuntimeError):
    """The memory of the device does not suffice for a single pair."""


@dataclass
class Passes:
    """The largest pass of a training worker. It is halved when memory runs out, and stays so for the rest of the attempt."""

    max_tokens: int | None = None
    """Padded tokens of the longer side in a pass. None: whatever the stream of batches holds."""

    def cut(self, share: Share) -> Share:
        """Return the share in passes of at most `max_tokens`, or of one pair."""
        if self.max_tokens is None:
            return share
        return share._replace(slices=[part for batch in share.slices for part in self._parts(batch)])

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        assert self.max_tokens is not None
        count = min(len(batch.ids), -(-_tokens(batch) // self.max_tokens))
        for part in range(count):
            yield batch.select(torch.arange(part, len(batch.ids), count))

    def halve(self, share: Share) -> None:
        """Halve the passes in which a share, already cut, did not fit. Raises TrainingMemoryError if they have one pair each."""
        largest = max(share.slices, key=_tokens)
        if all(len(batch.ids) == 1 for batch in share.slices):
            raise TrainingMemoryError(
                f"out of memory with one pair of {largest.source.size(1)} source and {largest.target.size(1)} target tokens; lower "
                "training.max_tokens, train a smaller network, or use a device with more memory"
            )
        self.max_tokens = max(_tokens(largest) // 2, 1)


def _tokens(batch: Batch) -> int:
    return len(batch.ids) * max(batch.source.size(1), batch.target.size(1))


def within_memory(
    passes: Passes, model: nn.Module, share: Share, attempt: Callable[[Share], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return `attempt(share)`, with the share in smaller and smaller passes if memory runs out.

    An attempt begins with clear gradients, and with the buffers that `model` had before the first one. Raises TrainingMemoryError
    if a single pair does not fit.
    """
    before = [buffer.clone() for buffer in model.buffers()]
    while True:
        cut = passes.cut(share)
        try:
            return attempt(cut)
        except MEMORY_ERRORS:
            passes.halve(cut)
        # Outside of the handler, whose traceback holds the tensors of the failed pass.
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
