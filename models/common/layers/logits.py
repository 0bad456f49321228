"""Logits [N,V], which are too large to be held at once, in parts of rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CPU_ROWS = 512
"""The most rows that are held at a time on a CPU."""
CPU_LOGITS = 2**24
GPU_LOGITS = 2**26
"""The most numbers that are held at a time.

Each part reads the weights of the output, and adds to their gradient. On a CPU a part has enough rows for this to take little of
its time, and not more, so that the logits of a small vocabulary stay in the caches. A GPU needs many numbers at a time.
"""


def logits_parts(count: int, vocabulary: int, device: torch.device) -> Iterator[slice]:
    """Yield slices of `count` rows whose logits, one for each token of the vocabulary, are held together."""
    held = min(CPU_ROWS, CPU_LOGITS // vocabulary) if device.type == "cpu" else GPU_LOGITS // vocabulary
    rows = max(1, held)
    return (slice(start, min(start + rows, count)) for start in range(0, count, rows))


def with_logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of rows, and their logits states weight^T + bias for states [N,D], weight [V,D] and a bias [V] (None: 0).

    They reuse one buffer: whoever takes the next part has lost the one before. All tensors have one type; no gradient is recorded.
    """
    held = states.new_empty(0, len(weight))
    for part in logits_parts(len(states), len(weight), states.device):
        if not len(held):
            held = states.new_empty(part.stop - part.start, len(weight))
        out = held[: part.stop - part.start]
        if bias is None:
            yield part, torch.mm(states[part], weight.t(), out=out)
        else:
            yield part, torch.addmm(bias, states[part], weight.t(), out=out)
