"""Steps and plans as pure data. Nothing is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pipeline.plan.fingerprint import artifacts, fingerprint
from stages.artifacts import Artifact
from stages.errors import DataError, suggestion
from stages.stage import Stage

I = TypeVar("I")  # noqa: E741
C = TypeVar("C")
O = TypeVar("O", bound=Artifact)  # noqa: E741

MAX_STEPS = 10_000
"""The most steps of a run: planning them takes seconds."""


@dataclass(frozen=True)
class Step:
    """A stage applied to inputs and a config."""

    name: str
    stage: Stage[Any, Any, Any]
    inputs: Any
    config: Any
    fingerprint: str
    directory: Path
    """The directory of its artifact."""
    needs: tuple[str, ...]
    """Names of the steps whose artifacts are among its inputs."""


@dataclass(frozen=True)
class Plan:
    """Steps in an order in which each follows all steps that it needs."""

    steps: tuple[Step, ...]
    whole: tuple[Step, ...] = ()
    """All steps of the run, which identify it, if `steps` are a part of them."""
    last: str | None = None
    """The step or stage that `steps` end with, if they are a part."""

    def until(self, name: str | None) -> Plan:
        """Return the plan of the step or the stage `name`, with all steps that it needs. None stands for the whole plan.

        Raises DataError for an unknown name.
        """
        if name is None:
            return self
        wanted = self.named(name, "--until")
        for step in reversed(self.steps):
            if step.name in wanted:
                wanted.update(step.needs)
        part = tuple(s for s in self.steps if s.name in wanted)
        return Plan(part, self.whole or self.steps, name) if len(part) < len(self.steps) else self

    def named(self, name: str, option: str) -> set[str]:
        """Return the names of the steps that a step's or a stage's name selects. Raises DataError, which names `option`."""
        found = {s.name for s in self.steps if name in (s.name, s.stage.name)}
        if not found:
            raise DataError(
                f"{option}: expected a step or a stage of the plan ({', '.join(s.name for s in self.steps)}), got {name!r}"
                + suggestion(name, dict.fromkeys(known for s in self.steps for known in (s.name, s.stage.name)))
            )
        return found

    def needed(self, present: Callable[[Step], bool], further: Collection[str] = ()) -> list[Step]:
        """Return the steps that a run needs, in order, if those for which `present` is true have their artifacts.

        A run needs its products, its last steps, the `further` steps, and the inputs of all needed steps that are not present.
        """
        inputs = {need for step in self.steps for need in step.needs}
        wanted = {step.name for step in self.steps if step.stage.product or step.name not in inputs}.union(further)
        for step in reversed(self.steps):
            if step.name in wanted and not present(step):
                wanted.update(step.needs)
        return [step for step in self.steps if step.name in wanted]


@dataclass
class Builder:
    """A collector of steps during wiring."""

    root: Path
    steps: dict[str, Step] = field(default_factory=dict)
    """By fingerprint, so that equal steps are planned once."""
    _names: set[str] = field(default_factory=set)

    def add(self, stage: Stage[I, C, O], name: str, inputs: I, config: C) -> O:
        """Add the step `<stage>:<name>` and return the artifact that it will make. Raises DataError beyond `MAX_STEPS`."""
        key = fingerprint(stage.name, stage.version, config, inputs)
        directory = self.root / stage.name / key
        if key not in self.steps:
            named = f"{stage.name}:{name}"
            if named in self._names:
                raise AssertionError(f"expected different names for different steps, got {named} twice; fix the wiring")
            if len(self.steps) == MAX_STEPS:
                raise DataError(
                    f"expected a run of at most {MAX_STEPS:,} steps, got more; state fewer systems, searches or test texts"
                )
            self._names.add(named)
            makers = [self.steps[a.fingerprint].name for _, a in artifacts(inputs) if a.fingerprint in self.steps]
            needs = tuple(dict.fromkeys(makers))
            self.steps[key] = Step(named, stage, inputs, config, key, directory, needs)
        return stage.output(directory, key)

    def plan(self) -> Plan:
        """Return the plan of all steps so far."""
        return Plan(tuple(self.steps.values()))
