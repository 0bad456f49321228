"""What a stage may ask of machines, and the version that is a plain loop in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol, TypeVar

from annotated_types import Ge, Gt

from models.training.worker import TrainingWorker

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one step may hold of the machines at once."""

    workers: Annotated[int, Ge(1)] | None = None
    """Processes that share the work (map actors or training workers); empty: one for training, else one per CPU."""
    cpus: Annotated[float, Gt(0)] | None = None
    """CPUs, and so threads, of each worker; empty: all CPUs for a training worker, else 1."""
    gpus: Annotated[float, Ge(0)] = 0.0
    """GPUs of each worker; a fraction shares one."""
    memory_gib: Annotated[float, Ge(0)] = 0.0
    """Memory that Ray reserves for each worker, in GiB; 0 reserves none."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources of each worker, by name."""

    @property
    def threads(self) -> int:
        """Threads of one worker: its CPUs, at least one."""
        return max(1, int(self.cpus or 1))

    @property
    def alone(self) -> bool:
        """One worker, on CPUs: it needs no process beside the step's own."""
        return (self.workers or 1) == 1 and not self.gpus


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
