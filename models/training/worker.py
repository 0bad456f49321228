"""The rank and device of a training worker. This module does not import torch, so that plans can be made without it."""

from __future__ import annotations

from typing import NamedTuple


class TrainingWorker(NamedTuple):
    """One of the workers that train a network data-parallel."""

    rank: int = 0
    world_size: int = 1
    device: str = "cpu"
    """Torch device of this worker: `cpu` or `cuda:<index>`."""
    threads: int = 1
