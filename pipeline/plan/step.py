"""From a config to the steps that it asks for: an acyclic list, wired in plain Python. Nothing is read or written here."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Step:
    """A stage applied to inputs and a config."""

    name: str
    stage: Stage[Any, Any, Any]
    inputs: Any
    config: Any
    fingerprint: str
    directory: Path
    """Where its artifact will be."""
    needs: tuple[str, ...]
    """Steps whose artifacts it takes."""


@dataclass(frozen=True)
class Plan:
    """Steps, each after all that it needs."""

    steps: tuple[Step, ...]

    def until(self, name: str | None) -> Plan:
        """The step called `name`, or all steps of the stage called so, and what they need. Raises DataError for an unknown name."""
        if name is None:
            return self
        wanted = {s.name for s in self.steps if name in (s.name, s.stage.name)}
        if not wanted:
            raise DataError(
                f"--until: expected a step or a stage of the plan ({', '.join(s.name for s in self.steps)}), got {name!r}"
                + suggestion(name, dict.fromkeys(known for s in self.steps for known in (s.name, s.stage.name)))
            )
        for step in reversed(self.steps):
            if step.name in wanted:
                wanted.update(step.needs)
        return Plan(tuple(s for s in self.steps if s.name in wanted))


@dataclass
class Builder:
    """Collects steps while they are wired."""

    root: Path
    steps: dict[str, Step] = field(default_factory=dict)
    """By fingerprint: a step that is asked for twice is made once."""

    def add(self, stage: Stage[I, C, O], name: str, inputs: I, config: C) -> O:
        """Plan `stage` as the step `<stage>:<name>` and return the artifact that it will leave."""
        key = fingerprint(stage.name, stage.version, config, inputs)
        directory = self.root / stage.name / key
        if key not in self.steps:
            if any(step.name == f"{stage.name}:{name}" for step in self.steps.values()):
                raise AssertionError(f"two different steps are called {stage.name}:{name}")
            made = [self.steps[a.fingerprint].name for _, a in artifacts(inputs) if a.fingerprint in self.steps]
            needs = tuple(dict.fromkeys(made))
            self.steps[key] = Step(f"{stage.name}:{name}", stage, inputs, config, key, directory, needs)
        return stage.output(directory, key)

    def plan(self) -> Plan:
        return Plan(tuple(self.steps.values()))
