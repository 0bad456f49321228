"""Batches of sources as padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.config.options import OutputLimits
from fewstep.vocabulary import EOS, PAD

Ints = npt.NDArray[np.int64]


class Sources(NamedTuple):
    """A batch of sources."""

    rows: Sequence[Sequence[int]]
    """The sources without EOS."""
    ids: Ints
    """The padded sources [B,S] with EOS."""
    lengths: Ints
    """The lengths [B] of the sources with EOS."""


def gather(rows: Sequence[Sequence[int]], max_tokens: int) -> Sources:
    """Return sources without EOS as one batch. Raises ValueError for one of more than `max_tokens` tokens."""
    check_lengths("sources", rows, max_tokens)
    return Sources(rows, *padded(rows))


def padded(rows: Sequence[Any]) -> tuple[Ints, Ints]:
    """Return rows of ids (lists or arrays, without EOS) as ids [B,N] with EOS, padded, and lengths [B] with EOS."""
    lengths = [len(row) + 1 for row in rows]
    matrix = np.full((len(rows), max(lengths, default=1)), PAD, dtype=np.int64)
    for line, row in zip(matrix, rows, strict=True):
        line[: len(row)] = row
        line[len(row)] = EOS
    return matrix, np.array(lengths, dtype=np.int64)


def check_lengths(name: str, rows: Sequence[Sequence[int]], max_tokens: int) -> None:
    """Raise ValueError for a row of more than `max_tokens` tokens."""
    for row, ids in enumerate(rows):
        if len(ids) > max_tokens:
            raise ValueError(f"{name}[{row}]: expected at most {max_tokens} tokens, got {len(ids)}; cut or leave it out")


def max_output_lengths(limits: OutputLimits, source_lengths: Ints, max_positions: int) -> Ints:
    """Return maximum output lengths [B] in tokens with EOS, from source lengths [B] with EOS."""
    return np.minimum(source_lengths + limits.max_extra_tokens, min(limits.max_tokens or max_positions, max_positions))
