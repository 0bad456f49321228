"""A system of the `dag` family in a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from fewstep.config.bounds import MinLen
from fewstep.config.labels import labelled
from fewstep.config.problems import Problem
from fewstep.families.dag.config import DagConfig, DagSearch
from models.training.recipe import StandaloneSystem, part


@dataclass(frozen=True, kw_only=True)
class DagSystem(StandaloneSystem, DagConfig):
    """A trained Directed Acyclic Transformer. The values of `defaults` apply to its keys, except for `search`. Its label smoothing
    is 0 unless stated."""

    network_type: ClassVar = DagConfig
    search_type: ClassVar = DagSearch
    analysis: ClassVar = "dag_analysis"
    training_presets: ClassVar[Mapping[str, Any]] = {"label_smoothing": 0.0}

    family: Literal["dag"]
    """Family of models."""
    search: Annotated[dict[str, DagSearch], MinLen(1)] = field(default_factory=lambda: labelled(DagSearch()))
    """Searches that it is evaluated with, the first its default: `lookahead`, `{beam: {beam_size: 100}}`, a list of these, or a map
    of them by label."""

    @property
    def network(self) -> DagConfig:
        """The network alone."""
        return part(self, DagConfig)

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from super().problems()
        if self.objective == "ngram" and self.training.label_smoothing:
            expected = "0 with objective ngram, which counts with true probabilities"
            yield Problem(("training", "label_smoothing"), expected, self.training.label_smoothing)
        if self.sampled_tokens and self.training.label_smoothing:
            yield Problem(("sampled_tokens",), "none with label smoothing, which is over all tokens", self.sampled_tokens)


SYSTEM = DagSystem
