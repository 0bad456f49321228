"""Settings that the systems of all families share: data, training, and the network that a system decodes with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from fewstep.config.bounds import Ge
from fewstep.config.network import NetworkConfig
from fewstep.config.problems import Problem
from fewstep.config.search import SearchConfig
from models.training.config import TrainingConfig
from models.training.initial import InitialWeights

T = TypeVar("T")


def part(whole: object, kind: type[T]) -> T:
    """Return the fields of `whole` that make up a plain `kind`."""
    return kind(**{f.name: getattr(whole, f.name) for f in fields(kind)})  # type: ignore[arg-type]


class Companion(NamedTuple):
    """Another system of the config that a system depends on."""

    name: str
    family: str
    network: NetworkConfig | None
    """The network. None: the system is pinned, and its directory describes the network."""
    networks: int = 1
    """Number of networks whose probabilities are averaged."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The number of times that each pair stands in an epoch."""

    raw: Annotated[int, Ge(0)] = 1
    """Copies of pairs with the targets of the training text."""
    distilled: Annotated[int, Ge(0)] = 1
    """Copies of pairs with the targets that the teacher writes."""


@dataclass(frozen=True, kw_only=True)
class TrainedSystem:
    """A system that is trained. The network's keys of its family stand beside these."""

    network_type: ClassVar[type[NetworkConfig]]
    """The family's network."""
    search_type: ClassVar[type[SearchConfig]]
    """The family's search."""
    presets: ClassVar[Mapping[str, Any]] = {}
    """Values of network sizes for this family, in place of those of `size` and of `defaults`."""
    analysis: ClassVar[str] = ""
    """Key of `evaluation` that requests an analysis of such systems; empty if there is no such analysis."""
    training_presets: ClassVar[Mapping[str, Any]] = {}
    """Values of `training` for this family where neither the system nor `defaults` states others."""

    family: str
    """Family of the network."""
    data: str = "raw"
    """Targets that the system learns from."""
    initial_weights: InitialWeights = "random"
    """Weights that training starts from."""
    search: Mapping[str, SearchConfig] = field(default_factory=dict)
    """Searches by label, the default first."""
    mixture: Mixture = Mixture()
    """Parts of the data with `data: mixed`."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The recipe of its training."""
    num_averaged: Annotated[int, Ge(1)] | None = None
    """Number of the candidates kept by training (`training.num_averaged`) that are averaged into the weights it decodes with: the
    best or the last of them. A change needs no new training. Empty: all of them."""

    @property
    def network(self) -> NetworkConfig:
        """The network alone."""
        return part(self, self.network_type)

    @property
    def averaging(self) -> TrainingConfig | None:
        """The recipe that chooses the averaged candidates, where it is not that of the training."""
        return None if self.num_averaged is None else replace(self.training, num_averaged=self.num_averaged)

    @property
    def table_text(self) -> Literal["raw", "distilled"] | None:
        """The text that the candidate tables of its network are counted from; None: the network needs no tables."""
        return None

    @property
    def companions(self) -> dict[str, str]:
        """The names of the systems that are copied into this one, by role."""
        return {}

    @property
    def further_sources(self) -> tuple[Path, ...]:
        """Files of source text that a companion translates in addition to the training text, where the data are its outputs."""
        return ()

    def problems(self) -> Iterator[Problem]:
        """Yield the options that are not a valid combination."""
        yield from self.network.problems()
        for problem in self.training.problems():
            yield replace(problem, path=("training", *problem.path))
        kept = self.training.num_averaged
        if self.num_averaged is not None and self.num_averaged >= kept:
            expected = f"fewer than the {kept} candidates that its training keeps"
            yield Problem(("num_averaged",), expected, self.num_averaged)
        if self.data == "mixed" and self.mixture.raw + self.mixture.distilled == 0:
            yield Problem(("mixture",), "at least 1 copy of one kind of data", "none")

    def companion_problems(self, companions: Mapping[str, Companion]) -> Iterator[Problem]:
        """Yield the options that are not valid with the companions (by role)."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class StandaloneSystem(TrainedSystem):
    """A trained system that works without other systems."""

    data: Literal["raw", "distilled", "mixed"] = "raw"
    """Targets that the system learns from: those of the training text, those that the teacher writes, or both."""
    initial_weights: InitialWeights = "random"
    """Weights that training starts from: `random`, those of the `teacher`, those of a `pretraining` of this network, those of a
    trained system that is listed earlier, by its name, or `{from: DIRECTORY}` of a finished network. They are copied wherever name
    and shape are the same."""
