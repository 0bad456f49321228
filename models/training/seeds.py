"""Seeds as pure functions of their purpose, so that no generator state needs to be saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NOISE_SEED: ContextVar[int | None] = ContextVar("noise seed", default=None)


def seed_of(*parts: int | str) -> int:
    """Return a seed of 63 bits for, say, (seed, update, rank, purpose); distinct parts give unrelated seeds."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def noise_seed(seed: int) -> Iterator[None]:
    """Enter a context in which the noise of pairs (`models.common.noise`) has a seed of its own, apart from that of torch."""
    token = _NOISE_SEED.set(seed)
    try:
        yield
    finally:
        _NOISE_SEED.reset(token)


def current_noise_seed(default: int) -> int:
    """Return the seed of the innermost `noise_seed`, or the default outside of all."""
    seed = _NOISE_SEED.get()
    return default if seed is None else seed
