"""The declaration of a stage: a function over typed artifacts, with a name and a version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Generic, TypeVar

from stages.artifacts import Artifact
from stages.context import StepContext

I = TypeVar("I")  # noqa: E741  (the three letters of the design: inputs, config, output)
C = TypeVar("C")
O = TypeVar("O", bound=Artifact)  # noqa: E741


@dataclass(frozen=True)
class Implementation:
    """The function `run` of `<package>.run`, imported when it is first called, so that declaring a stage loads nothing heavy."""

    package: str

    def __call__(self, inputs: object, config: object, context: StepContext) -> None:
        """Fill `context.directory`."""
        import_module(f"{self.package}.run").run(inputs, config, context)


@dataclass(frozen=True)
class Stage(Generic[I, C, O]):
    """A verb of the pipeline. `run(inputs, config, context)` fills `context.directory`; wiring it wrongly is a mypy error.

    `version` is raised when the meaning of the output changes, so that older artifacts are not taken for it.
    A stage that `distributes` holds nothing itself, its workers do; any other is one worker, and so is one that is `alone`.
    """

    name: str
    version: int
    run: Callable[[I, C, StepContext], None]
    output: type[O]
    distributes: bool = False
    """Hands its work to `context.workers`."""
    trains: bool = False
    """Its workers are training workers: all must be there at once, and their number is part of its bits."""
    exclusive: bool = False
    """Nothing else may run beside it: it measures time."""
    product: bool = False
    """A run is for its artifact: a missing one is made again even where no later step needs it."""

    @property
    def module(self) -> str:
        """The module that holds the implementation; `run` names it without importing it."""
        return f"{self.run.package}.run" if isinstance(self.run, Implementation) else self.run.__module__
