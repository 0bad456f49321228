"""Phases of a step: maps over items or parts of a text on the workers, each complete before the next begins."""

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


def run_phase(context: StepContext, make: Callable[[A], Callable[[T], None]], argument: A, items: Sequence[T], unit: str) -> None:
    """Apply the function `make(argument)` to every item on the workers of the step, and report the progress.

    Raises TransientError when the step was asked to stop; finished items are kept.
    """
    for done, _ in enumerate(context.workers.map(make, argument, items), 1):
        context.progress(done, len(items), unit)
        if context.stop_requested():
            raise TransientError(f"asked to stop: {done} of {len(items)} {unit} are kept")


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
