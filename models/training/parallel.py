"""What data-parallel training workers say to each other (torch.distributed is set up by whoever starts them)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from models.training.worker import Place

T = TypeVar("T")


def sum_across(place: Place, *tensors: Tensor) -> None:
    """Replace each tensor by its sum over all workers."""
    if place.size > 1:
        for tensor in tensors:
            dist.all_reduce(tensor)


def told_by_first(place: Place, values: Sequence[int]) -> list[int]:
    """The numbers that the first worker gave."""
    if place.size == 1:
        return list(values)
    tensor = torch.tensor(list(values), dtype=torch.int64, device=place.device)
    dist.broadcast(tensor, src=0)
    return [int(value) for value in tensor.tolist()]


def gathered(place: Place, item: T) -> list[T]:
    """What each worker gave, by rank."""
    if place.size == 1:
        return [item]
    items: list[T | None] = [None] * place.size
    dist.all_gather_object(items, item)
    return [item for item in items if item is not None]


def prefetched(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made up to `depth` ahead in a thread. An error in making one is raised in its place."""
    waiting: deque[Future[T | None]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as thread:
        while True:
            while len(waiting) < depth:
                waiting.append(thread.submit(next, items, None))
            item = waiting.popleft().result()
            if item is None:
                return
            yield item
