"""Batches of sentences of similar length, halved where memory runs out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import models.bundle.system
from models.family import Hypothesis
from stages.errors import StageError


def decode_batch(
    system: models.bundle.system.System, search: Any, sources: list[list[int]], prepared: Any = None
) -> list[list[Hypothesis]]:
    """Hypotheses of each source, decoded together, or half by half where the memory does not suffice; that changes none of them.

    Raises StageError when it does not suffice for one.
    """
    import torch

    try:
        return system.decoder.decode(system.decoder.prepare(sources, search) if prepared is None else prepared, search)
    except (torch.OutOfMemoryError, MemoryError) as error:
        if len(sources) == 1:
            reason = str(error).partition("\n")[0]
            raise StageError(
                f"decoding: out of memory with one source of {len(sources[0])} tokens: {reason}; take a "
                "smaller beam_size, or cut sources (corpus.max_source_tokens)"
            ) from error
    half = len(sources) // 2
    return decode_batch(system, search, sources[:half]) + decode_batch(system, search, sources[half:])


def batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Positions of the non-empty sentences, sorted by length and cut so that a batch pads to `batch_tokens` at most.

    `lengths` are in tokens without EOS; each sentence is counted with it. A sentence beyond the budget is alone.
    """
    result: list[list[int]] = []
    for index in sorted((index for index, length in enumerate(lengths) if length), key=lambda index: (lengths[index], index)):
        if result and (lengths[index] + 1) * (len(result[-1]) + 1) <= batch_tokens:
            result[-1].append(index)
        else:
            result.append([index])
    return result
