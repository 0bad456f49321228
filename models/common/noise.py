"""Random numbers that are functions of a sentence and not of its batch."""

from __future__ import annotations

import torch
from torch import Tensor

STEP, FIRST, SECOND = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""The constants of splitmix64 (Steele et al. 2014), as signed integers."""


def uniform_noise(ids: Tensor, size: int, *, training: bool) -> Tensor:
    """Return float32 numbers [B,size], uniform in [0,1), that depend on the ids [B] of the pairs.

    In training they also depend on the seed of torch's generator, which training sets for each update, but not on the numbers that
    were drawn from it: a pair has the same noise in any batch.
    """
    seed = torch.initial_seed() & (2**62 - 1) if training else 0
    rows = _mixed(ids * STEP + seed)
    values = _mixed(rows[:, None] + torch.arange(1, size + 1, device=ids.device) * STEP)
    return (_shifted(values, 40)).float() / 2**24


def _mixed(x: Tensor) -> Tensor:
    """Return the output function of splitmix64 for integers that wrap around."""
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Return x shifted to the right, with zeros in front."""
    return (x >> bits) & (2 ** (64 - bits) - 1)
