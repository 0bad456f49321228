"""Seeds as pure functions of their purpose, and noise as a function of a sentence and not of its batch, so that no generator state
needs to be saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

_NOISE_SEED: ContextVar[int | None] = ContextVar("noise seed", default=None)


def seed_of(*parts: int | str) -> int:
    """Return a seed of 63 bits for, say, (seed, update, rank, purpose); distinct parts give unrelated seeds."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def noise_seed(seed: int) -> Iterator[None]:
    """Enter a context in which the noise of pairs (`uniform_noise`) has a seed of its own, apart from that of torch."""
    token = _NOISE_SEED.set(seed)
    try:
        yield
    finally:
        _NOISE_SEED.reset(token)


def current_noise_seed(default: int) -> int:
    """Return the seed of the innermost `noise_seed`, or the default outside of all."""
    seed = _NOISE_SEED.get()
    return default if seed is None else seed


STEP, FIRST, SECOND = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""The constants of splitmix64 (Steele et al. 2014), as signed integers."""


def uniform_noise(ids: Tensor, size: int, *, training: bool) -> Tensor:
    """Return float32 numbers [B,size], uniform in [0,1), that depend on the ids [B] of the pairs.

    In training they also depend on the seed of `noise_seed`, which the training loop sets for each update, or else on that of
    torch's generator, but not on the numbers that were drawn from it: a pair has the same noise in any batch and on any worker.
    """
    seed = current_noise_seed(torch.initial_seed()) & (2**62 - 1) if training else 0
    rows = _mixed(ids * STEP + seed)
    values = _mixed(rows[:, None] + torch.arange(1, size + 1, device=ids.device) * STEP)
    noise: Tensor = _shifted(values, 40).float() / 2**24
    return noise


def _mixed(x: Tensor) -> Tensor:
    """Return the output function of splitmix64 for integers that wrap around."""
    x = (x ^ _shifted(x, 30)) * FIRST
    x = (x ^ _shifted(x, 27)) * SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Return x shifted to the right, with zeros in front."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted
