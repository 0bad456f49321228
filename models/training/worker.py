"""Where a training worker stands. Without torch, so that plans can be made where it is not loaded."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """One training worker among its peers."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    """Torch device of this worker: `cpu` or `cuda:<index>`."""
    threads: int = 1
