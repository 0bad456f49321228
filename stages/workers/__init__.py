"""What a stage may ask of machines, and the version that is a plain loop in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from models.training.worker import TrainingWorker

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Machines for one step. Functions and arguments cross processes, so they are module-level and picklable."""

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Apply `make(argument)`, made once in each worker, to every shard; yield (index, result) as they finish.

        A shard whose worker dies is given to another. An exception of the function ends the map.
        """
        ...

    def train(self, loop: Callable[[A, TrainingWorker], None], argument: A) -> None:
        """Run `loop(argument, worker)` in every training worker at once; torch.distributed is set up when there are several.

        When a worker dies all are started again: the loop continues from its own checkpoints.
        """
        ...


@dataclass(frozen=True)
class LocalWorkers:
    """The plain loop: everything in this process."""

    threads: int = 1
    device: str = "cpu"

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        if not shards:
            return
        function = make(argument)
        for index, shard in enumerate(shards):
            yield index, function(shard)

    def train(self, loop: Callable[[A, TrainingWorker], None], argument: A) -> None:
        loop(argument, TrainingWorker(device=self.device, threads=self.threads))
