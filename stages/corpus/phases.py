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

    def map(self, make: Callable[[A], Callable[[T], R]], argument: A, parts: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Apply the function `make(argument)` to every part; see `stages.workers.Workers.map`.

        A single part is processed in this process, since no worker would be ready sooner. Raises TransientError when the step was
        asked to stop; finished parts are kept.
        """
        workers = self.context.workers if len(parts) > 1 else LocalWorkers()
        for done, (index, result) in enumerate(workers.map(make, argument, parts), 1):
            yield index, result
            if done < len(parts) and self.context.stop_requested():
                raise TransientError(f"asked to stop: {done} of {len(parts)} parts are finished and kept")
