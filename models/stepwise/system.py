"""A system of the `stepwise` family in a config, and the teacher, which is of that family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from fewstep.config.bounds import Ge, Le, MinLen
from fewstep.config.labels import labelled
from fewstep.config.problems import Problem
from fewstep.families.stepwise.config import StepwiseConfig, StepwiseSearch
from models.training.config import TrainingConfig
from models.training.recipe import StandaloneSystem, part

Searches = Annotated[dict[str, StepwiseSearch], MinLen(1)]


def default_searches() -> dict[str, StepwiseSearch]:
    """Return greedy and beam search by label."""
    return labelled(StepwiseSearch(), StepwiseSearch(strategy="beam"))


@dataclass(frozen=True, kw_only=True)
class StepwiseTeacher(StepwiseConfig):
    """The autoregressive model that other systems learn from. The network's keys stand beside `data` and `training`."""

    family: Literal["stepwise"] = "stepwise"
    """Family of models."""
    data: Literal["raw"] = "raw"
    """Targets that the teacher learns from: those of the training text."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The recipe of its training."""
    ensemble: Annotated[int, Ge(1), Le(64)] = 1
    """Number of networks that are trained, with the seeds `training.seed`, `training.seed` + 1, ... Distillation decodes with the
    mean of their probabilities. The first network is the teacher."""

    @property
    def network(self) -> StepwiseConfig:
        """The network alone."""
        return part(self, StepwiseConfig)

    def recipes(self) -> list[TrainingConfig]:
        """Return the recipe of each network."""
        return [replace(self.training, seed=self.training.seed + number) for number in range(self.ensemble)]

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        for problem in self.training.problems():
            yield replace(problem, path=("training", *problem.path))


@dataclass(frozen=True, kw_only=True)
class StepwiseSystem(StandaloneSystem, StepwiseConfig):
    """A system that is trained. The network's keys stand beside `data`, `training` and `search`."""

    network_type: ClassVar = StepwiseConfig
    search_type: ClassVar = StepwiseSearch

    family: Literal["stepwise"] = "stepwise"
    """Family of models."""
    search: Searches = field(default_factory=default_searches)
    """Searches that it is evaluated with, the first its default: `greedy`, `{beam: {beam_size: 4}}`, a list of these, or a map of
    them by label."""

    @property
    def network(self) -> StepwiseConfig:
        """The network alone."""
        return part(self, StepwiseConfig)


SYSTEM = StepwiseSystem
