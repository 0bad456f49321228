"""The parts of a config that families differ in: teacher, distillation, systems and their searches."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from annotated_types import Ge, Gt, MinLen

from models.aggressive.config import AggressiveConfig, AggressiveSearch
from models.dag.config import DagConfig, DagSearch
from models.lattice.config import LatticeModelConfig, LatticeSearch
from models.stepwise.config import StepwiseConfig, StepwiseSearch
from models.training.config import TrainingConfig

T = TypeVar("T")


def part(whole: object, kind: type[T]) -> T:
    """The fields of `whole` that make up a plain `kind`."""
    return kind(**{f.name: getattr(whole, f.name) for f in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class StepwiseTeacher(StepwiseConfig):
    """The autoregressive model that others learn from. The network's keys stand beside `data` and `training`."""

    family: Literal["stepwise"] = "stepwise"
    """Family of models."""
    data: Literal["raw"] = "raw"
    """A teacher learns from the targets of the training text."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The recipe of its training."""
    ensemble: Annotated[int, Ge(1)] = 1
    """Networks that are trained, with the seeds `training.seed`, `training.seed` + 1, ...; the others learn from the mean of their
    probabilities. The first is the teacher."""

    @property
    def network(self) -> StepwiseConfig:
        return part(self, StepwiseConfig)

    def recipes(self) -> list[TrainingConfig]:
        """The training of each network."""
        return [replace(self.training, seed=self.training.seed + number) for number in range(self.ensemble)]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How often each pair of either data stands in an epoch."""

    raw: Annotated[int, Ge(0)] = 1
    """Pairs with the targets of the training text."""
    distilled: Annotated[int, Ge(0)] = 1
    """Pairs with the targets that the teacher writes."""


@dataclass(frozen=True, kw_only=True)
class _Learner:
    """What all systems that are trained have in common."""

    mixture: Mixture = Mixture()
    """With `data: mixed`, how much of either."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The recipe of its training."""
    average_fewer: Annotated[int, Ge(1)] | None = None
    """It decodes with the mean of only so many of the candidates that its training kept (`training.average_count`), the best or the
    last of them. May change without training anew. Empty: of all."""

    @property
    def averaging(self) -> TrainingConfig | None:
        """The recipe that says which candidates are averaged, where that is not its training's."""
        return None if self.average_fewer is None else replace(self.training, average_count=self.average_fewer)


@dataclass(frozen=True, kw_only=True)
class _Trained(_Learner):
    """And all that are trained for themselves."""

    data: Literal["raw", "distilled", "mixed"] = "raw"
    """What it learns from: the targets of the training text, those that the teacher writes, or both."""
    initial_weights: str = "random"
    """What its training starts from: chance (`random`), or the weights of the `teacher` or of a trained system that is listed
    before, by its name, wherever name and shape are the same."""


@dataclass(frozen=True, kw_only=True)
class StepwiseSystem(_Trained, StepwiseConfig):
    """A system that is trained. The network's keys stand beside `data`, `training` and `search`."""

    family: Literal["stepwise"] = "stepwise"
    """Family of models."""
    search: Annotated[tuple[StepwiseSearch, ...], MinLen(1)] = (StepwiseSearch(), StepwiseSearch(strategy="beam"))
    """Searches it is evaluated with, the first its default: `greedy`, `{beam: {beam_size: 4}}`, or a list of these."""

    @property
    def network(self) -> StepwiseConfig:
        return part(self, StepwiseConfig)


@dataclass(frozen=True, kw_only=True)
class DagSystem(_Trained, DagConfig):
    """A Directed Acyclic Transformer that is trained. Of `defaults` it takes what it has too, but for `search`; its label smoothing
    is 0 unless stated."""

    family: Literal["dag"]
    """Family of models."""
    search: Annotated[tuple[DagSearch, ...], MinLen(1)] = (DagSearch(),)
    """Searches it is evaluated with, the first its default: `lookahead`, `{beam: {beam_size: 100}}`, or a list of these."""

    @property
    def network(self) -> DagConfig:
        return part(self, DagConfig)


@dataclass(frozen=True, kw_only=True)
class LatticeSystem(_Trained, LatticeModelConfig):
    """A scorer of lattices that is trained. Of `defaults` it takes what it has too, but for `search` and `decoder_layers`: its
    scorer has one layer unless stated."""

    family: Literal["lattice"]
    """Family of models."""
    tables: Literal["raw", "distilled"] | None = None
    """Text that its candidate tables are counted from: with the human translations, or with the teacher's. Empty: as `data`, with
    `mixed` the teacher's. The top-level keys `alignment` and `lattice` say how."""
    search: Annotated[tuple[LatticeSearch, ...], MinLen(1)] = (LatticeSearch(),)
    """Searches it is evaluated with, the first its default: `viterbi`, `{viterbi: {candidates: 16}}`, `lookup`, or a list of
    these."""

    @property
    def network(self) -> LatticeModelConfig:
        return part(self, LatticeModelConfig)

    @property
    def counted(self) -> Literal["raw", "distilled"]:
        """The text of its tables."""
        return self.tables or ("raw" if self.data == "raw" else "distilled")


@dataclass(frozen=True, kw_only=True)
class AggressiveSystem(_Learner, AggressiveConfig):
    """A drafter that is trained, with the system that verifies what it drafts. Of `defaults` it takes what it has too, but for
    `search`."""

    family: Literal["aggressive"]
    """Family of models."""
    verifier: Annotated[str, MinLen(1)]
    """Name of another system, which writes one token a step from left to right: its network verifies, and travels with this one."""
    drafter_system: str = ""
    """Name of one more system, of any family, which drafts where a search says `drafter: system`; it travels along too."""
    data: Literal["raw", "distilled", "mixed", "verifier"] = "distilled"
    """What it learns from: the targets of the training text, those that the teacher writes, or both; or what the verifier writes
    greedily, which is what drafts are held against."""
    monolingual: tuple[Path, ...] = ()
    """Files of further text in the source language, one sentence a line, that the verifier writes too (data: verifier). A verifier
    writes what it learnt from otherwise than what is new to it. Sentences of test and validation texts are dropped from it."""
    initial_weights: Literal["random", "teacher", "verifier"] = "verifier"
    """What its training starts from: chance, or another's weights wherever name and shape are the same."""
    search: Annotated[tuple[AggressiveSearch, ...], MinLen(1)] = (AggressiveSearch(), AggressiveSearch(strategy="gad++"))
    """Searches it is evaluated with, the first its default: `gad`, `{gad++: {ranks: 5, gap: 3}}`, or a list of these."""

    @property
    def network(self) -> AggressiveConfig:
        return part(self, AggressiveConfig)


@dataclass(frozen=True, kw_only=True)
class UsedSystem:
    """A system that is not trained for itself."""

    use: Literal["teacher", "ensemble"]
    """The teacher is evaluated under this name, alone or with all networks of its ensemble."""
    search: Annotated[tuple[StepwiseSearch, ...], MinLen(1)] = (StepwiseSearch(), StepwiseSearch(strategy="beam"))
    """Searches it is evaluated with, the first its default."""

    @property
    def family(self) -> Literal["stepwise"]:
        return "stepwise"


TrainedSystem = StepwiseSystem | DagSystem | LatticeSystem | AggressiveSystem
SYSTEMS: dict[str, type[TrainedSystem]] = {
    "stepwise": StepwiseSystem,
    "dag": DagSystem,
    "lattice": LatticeSystem,
    "aggressive": AggressiveSystem,
}
"""By family."""
SEARCHES: dict[str, type[Any]] = {
    "stepwise": StepwiseSearch,
    "dag": DagSearch,
    "lattice": LatticeSearch,
    "aggressive": AggressiveSearch,
}


def strategies(search: type[Any]) -> tuple[str, ...]:
    """The names that a search may go by."""
    return get_args(get_type_hints(search)["strategy"])


@dataclass(frozen=True, kw_only=True)
class Distillation(StepwiseSearch):
    """How the teacher decodes the training source. The keys of a search stand beside `batch_tokens`."""

    strategy: Literal["greedy", "beam", "sample"] = "beam"
    """Best token in each slot, beam search, or nucleus sampling."""
    batch_tokens: Annotated[int, Ge(1)] | None = 4000
    """Padded source tokens in a batch; empty: what each kind of device is quickest with, measured when the step begins."""
    choose: Literal["score", "reference"] = "score"
    """Which of the n best becomes the target: the one that the search ranks first, or the one nearest to the target of the training
    text by sentence BLEU, of equals the one ranked first (sequence-level interpolation: Kim and Rush 2016, section 3.3)."""
    max_ratio: Annotated[float, Gt(0)] | None = None
    """Longest output that is kept, in tokens per token of its source, both with EOS; empty: what the search allows."""
    monolingual: tuple[Path, ...] = ()
    """Files of further text in the source language, one sentence a line, that the teacher translates too. Sentences of test and
    validation texts are dropped from it."""

    @property
    def search(self) -> StepwiseSearch:
        return part(self, StepwiseSearch)
