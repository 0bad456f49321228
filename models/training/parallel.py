"""Communication of data-parallel training workers. The caller sets torch.distributed up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from models.training.worker import TrainingWorker

T = TypeVar("T")


def all_reduce(worker: TrainingWorker, *tensors: Tensor) -> None:
    """Replace each tensor by its sum over all workers."""
    if worker.world_size > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def broadcast(worker: TrainingWorker, values: Sequence[int]) -> list[int]:
    """Return the values of the first worker."""
    if worker.world_size == 1:
        return list(values)
    tensor = torch.tensor(list(values), dtype=torch.int64, device=worker.device)
    dist.broadcast(tensor, src=0)
    return [int(value) for value in tensor.tolist()]


def any_worker(worker: TrainingWorker, flags: Sequence[bool]) -> list[bool]:
    """Return for each flag whether it is true on any worker."""
    if worker.world_size == 1:
        return list(flags)
    tensor = torch.tensor(list(flags), dtype=torch.int32, device=worker.device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return [bool(value) for value in tensor.tolist()]


def all_gather(worker: TrainingWorker, item: T) -> list[T]:
    """Return the items of all workers, by rank."""
    if worker.world_size == 1:
        return [item]
    items: list[T | None] = [None] * worker.world_size
    dist.all_gather_object(items, item)
    return [item for item in items if item is not None]
