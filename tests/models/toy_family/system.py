"""Configs of the toy family. Nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from fewstep.config.bounds import Gt, MinLen
from fewstep.config.labels import labelled
from fewstep.config.network import NetworkConfig, Sizes
from fewstep.config.problems import Problem
from fewstep.config.search import LimitedSearch, SystemParts
from models.training.recipe import StandaloneSystem


@dataclass(frozen=True, kw_only=True)
class GlossaryConfig(NetworkConfig):
    """A table with one row of target scores for each source token."""

    scale: Annotated[float, Gt(0)] = 1.0
    """Factor of the scores."""

    def fewest_weights(self, sizes: Sizes) -> int:
        """Return the number of weights of the table."""
        return sizes.source * sizes.target


@dataclass(frozen=True, kw_only=True)
class GlossarySearch(LimitedSearch):
    """The token that a row ranks first, or among all that it ranks second."""

    strategy: Literal["first", "second"] = "first"
    """Rank of the tokens that are written."""

    def problems(self, network: NetworkConfig | None, parts: SystemParts) -> Iterator[Problem]:
        """Yield the options that are not valid with one another or with the system."""
        if self.n_best > 1:
            yield Problem(("n_best",), "1", self.n_best)


@dataclass(frozen=True, kw_only=True)
class GlossarySystem(StandaloneSystem, GlossaryConfig):
    """A glossary that is trained."""

    network_type: ClassVar = GlossaryConfig
    search_type: ClassVar = GlossarySearch

    family: Literal["toy"]
    """Family of models."""
    search: Annotated[dict[str, GlossarySearch], MinLen(1)] = field(default_factory=lambda: labelled(GlossarySearch()))
    """Searches that it is evaluated with."""


SYSTEM = GlossarySystem
