"""The phases of the corpus stage: maps over parts of a text, on the workers of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stages.context import StepContext
from stages.errors import TransientError
from stages.workers import LocalWorkers

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Phases:
    """Runs one phase after another; each begins when all parts of the one before are done."""

    context: StepContext

    def map(
        self, make: Callable[[A], Callable[[T], R]], argument: A, parts: Sequence[T], *, quick: bool = False
    ) -> Iterator[tuple[int, R]]:
        """Apply the function `make(argument)` to every part; see `stages.workers.Workers.map`.

        A single part, and parts that are `quick` together, are processed in this process, since no worker would be ready sooner;
        but not if the workers are on machines with a resource that this one may lack, such as the user's files. Raises
        TransientError when the step was asked to stop; finished parts are kept.
        """
        here = (quick or len(parts) == 1) and not self.context.resources.custom
        workers = LocalWorkers() if here else self.context.workers
        for done, (index, result) in enumerate(workers.map(make, argument, parts), 1):
            yield index, result
            if done < len(parts) and self.context.stop_requested():
                raise TransientError(f"asked to stop: {done} of {len(parts)} parts are finished and kept")
