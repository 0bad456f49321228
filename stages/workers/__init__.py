"""The workers of a step: their interface, and an implementation that is a plain loop in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Protocol, TypeVar

from fewstep.config.bounds import Ge, Gt
from models.training.worker import TrainingWorker

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that one step may use at once."""

    workers: Annotated[int, Ge(1)] | None = None
    """Number of processes that share the work (map actors or training workers). Empty: one for training, else one per CPU."""
    min_workers: Annotated[int, Ge(1)] | None = None
    """Fewest workers with which a training goes on when machines are lost and do not come back in time. Empty: `workers`."""
    cpus: Annotated[float, Gt(0)] | None = None
    """CPUs, and therefore threads, of each worker. Empty: all CPUs for a training worker, else 1."""
    gpus: Annotated[float, Ge(0)] = 0.0
    """GPUs of each worker. Several workers share a GPU if this is a fraction."""
    memory_gib: Annotated[float, Ge(0)] = 0.0
    """Memory in GiB that Ray reserves for each worker; 0 reserves no memory."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources of each worker, by name."""

    @property
    def threads(self) -> int:
        """Number of threads of a worker: its CPUs, at least one."""
        return max(1, int(self.cpus or 1))

    @property
    def alone(self) -> bool:
        """True for a single worker on CPUs, which runs in the process of the step."""
        return (self.workers or 1) == 1 and not self.gpus


@dataclass(frozen=True, kw_only=True)
class LimitedResources(Resources):
    """Resources of a step on the user's machine whose `OMP_NUM_THREADS` asks for fewer threads than there are CPUs."""

    max_threads: int

    @property
    def threads(self) -> int:
        """Number of threads of a worker: its CPUs, at most the user's limit."""
        return min(super().threads, self.max_threads)

    @staticmethod
    def of(granted: Resources, max_threads: int | None) -> Resources:
        """Return granted resources with at most `max_threads` threads; None sets no limit."""
        if max_threads is None or max_threads >= granted.threads:
            return granted
        return LimitedResources(**{one.name: getattr(granted, one.name) for one in fields(Resources)}, max_threads=max_threads)


class Workers(Protocol):
    """Workers of one step. Functions must be module-level and arguments picklable, since they cross processes."""

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, shards: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Apply the function `make(argument)` to every shard and yield pairs (index, result) as they finish.

        `make` is called once in each worker. A shard whose worker dies is given to another worker. An exception of the function
        ends the map.
        """
        ...

    def train(self, loop: Callable[[A, TrainingWorker], None], argument: A) -> None:
        """Run `loop(argument, training_worker)` in all training workers at once. torch.distributed is set up if there are several.

        When a worker dies, all are started again; the loop continues from its checkpoints.
        """
        ...


@dataclass(frozen=True)
class LocalWorkers:
    """Workers that are a plain loop in this process."""

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
