"""A system of the `parallel` family in a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from fewstep.config.bounds import MinLen
from fewstep.config.labels import labelled
from fewstep.config.problems import Problem
from fewstep.families.parallel.config import ParallelConfig, ParallelSearch
from fewstep.system.format import RESCORER
from models.training.recipe import Companion, StandaloneSystem, part

RESCORER_FAMILY = "stepwise"


@dataclass(frozen=True, kw_only=True)
class ParallelSystem(StandaloneSystem, ParallelConfig):
    """A trained non-autoregressive network, which writes all slots at once. The values of `defaults` apply to its keys, except for
    `search`."""

    network_type: ClassVar = ParallelConfig
    search_type: ClassVar = ParallelSearch
    analysis: ClassVar = "parallel_analysis"

    family: Literal["parallel"]
    """Family of models."""
    rescorer: str = ""
    """Name of another system, of family `stepwise`, which chooses among outputs of several lengths where a search has `rescoring:
    system`. It is copied into this system."""
    search: Annotated[dict[str, ParallelSearch], MinLen(1)] = field(default_factory=lambda: labelled(ParallelSearch()))
    """Searches that it is evaluated with, the first its default: `greedy`, `{mask-predict: {iterations: 4}}`, `prefix-beam`, a list
    of these, or a map of them by label."""

    @property
    def network(self) -> ParallelConfig:
        """The network alone."""
        return part(self, ParallelConfig)

    @property
    def companions(self) -> dict[str, str]:
        """The names of the systems that are copied into this one, by role."""
        return {RESCORER: self.rescorer} if self.rescorer else {}

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        if self.objective == "ctc-ngram" and self.training.label_smoothing:
            expected = "0 with objective ctc-ngram, which counts with true probabilities"
            yield Problem(("training", "label_smoothing"), expected, self.training.label_smoothing)

    def companion_problems(self, companions: Mapping[str, Companion]) -> Iterator[Problem]:
        """Yield the options that are not valid with the system that rescores."""
        rescorer = companions.get(RESCORER)
        if rescorer is None:
            return
        if rescorer.family != RESCORER_FAMILY:
            got = f"{rescorer.name!r} of family {rescorer.family}"
            yield Problem(("rescorer",), f"a system of family {RESCORER_FAMILY}", got)
        elif rescorer.network is not None and rescorer.network.max_positions < self.max_positions:
            expected = f"at most {rescorer.network.max_positions}, as {rescorer.name!r} has, to score all outputs"
            yield Problem(("max_positions",), expected, self.max_positions)


SYSTEM = ParallelSystem
