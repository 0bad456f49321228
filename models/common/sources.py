"""Batches of sources as arrays, which native code reads directly and torch shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.common.inference import check_lengths
from models.config.options import OutputLimits
from models.training.batch import Ints, padded


class Sources(NamedTuple):
    """A batch of sources."""

    rows: Sequence[Sequence[int]]
    """The sources without EOS."""
    ids: Ints
    """The padded sources [B,S] with EOS."""
    lengths: Ints
    """The lengths [B] of the sources with EOS."""

    def tensors(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Return ids and lengths on a device."""
        return torch.from_numpy(self.ids).to(device), torch.from_numpy(self.lengths).to(device)


def gather(rows: Sequence[Sequence[int]], max_tokens: int) -> Sources:
    """Return sources without EOS as one batch. Raises ValueError for one of more than `max_tokens` tokens."""
    check_lengths("sources", rows, max_tokens)
    return Sources(rows, *padded(rows))


def max_output_lengths(limits: OutputLimits, source_lengths: Ints, max_positions: int) -> Ints:
    """Return maximum output lengths [B] in tokens with EOS, from source lengths [B] with EOS."""
    return np.minimum(source_lengths + limits.max_extra_tokens, min(limits.max_tokens or max_positions, max_positions))
