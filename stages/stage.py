"""The declaration of a stage: a function on typed artifacts, with a name and a version."""

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


OPERATIONAL = {"fingerprint": False}
"""Metadata of fields of a stage's config that change how the work is done and not its result: they are not part of fingerprints."""


def version(number: int) -> dict[str, int]:
    """Return the metadata of a field of a stage's inputs that is read in another way than before: the stage runs again for inputs
    that have the field. Its own `version` does so for all inputs."""
    return {"version": number}


@dataclass(frozen=True)
class Implementation:
    """The function `run` of `<package>.run`. It is imported when it is called, so that declarations of stages import nothing
    heavy."""

    package: str

    def __call__(self, inputs: object, config: object, context: StepContext) -> None:
        """Run the stage, which writes to `context.directory`."""
        import_module(f"{self.package}.run").run(inputs, config, context)


@dataclass(frozen=True)
class Stage(Generic[I, C, O]):
    """A kind of step. `run(inputs, config, context)` writes the artifact to `context.directory`.

    Inputs, config and output are typed, so that wrong wiring is an error of mypy. Raise `version` when the meaning of the output
    changes; artifacts of older versions are then not reused. A stage that `distributes` holds no resources itself, but its workers
    do; any other stage is one worker.
    """

    name: str
    version: int
    run: Callable[[I, C, StepContext], None]
    output: type[O]
    distributes: bool = False
    """True if the stage runs on `context.workers`."""
    trains: bool = False
    """True if its workers are training workers, which start together and whose requested number affects the result."""
    exclusive: bool = False
    """True if no other step may run at the same time, since the stage measures time."""
    reads_records: bool = False
    """True if the stage reads records of its inputs, which are no part of their content."""
    product: bool = False
    """True if the artifact is a product of a run: it is recomputed if it is missing, even if no later step needs it."""

    @property
    def module(self) -> str:
        """Name of the module of the implementation, which is not imported."""
        return f"{self.run.package}.run" if isinstance(self.run, Implementation) else self.run.__module__
