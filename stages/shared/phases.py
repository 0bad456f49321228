"""A phase of a step: a map over items on the workers, whose results are files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stages.context import StepContext
from stages.errors import TransientError

A = TypeVar("A")
T = TypeVar("T")


def run_phase(context: StepContext, make: Callable[[A], Callable[[T], None]], argument: A, items: Sequence[T], unit: str) -> None:
    """Apply the function `make(argument)` to every item on the workers of the step, and report the progress.

    Raises TransientError when the step was asked to stop; finished items are kept.
    """
    for done, _ in enumerate(context.workers.map(make, argument, items), 1):
        context.progress(done, len(items), unit)
        if context.stop_requested():
            raise TransientError(f"asked to stop: {done} of {len(items)} {unit} are kept")
