"""Bundle all files that decoding needs in one directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from fewstep.config.search import SearchConfig
from models.training.config import TrainingConfig
from stages.artifacts import Ngram, System, Tables, Trained, Tuned, Vocabulary
from stages.shared.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class SystemInputs:
    trained: Trained | None = None
    """None: a finished system gets other searches (`alone`)."""
    vocabulary: Vocabulary | None = None
    """The vocabulary of the training."""
    ngram: Ngram | None = None
    """Language model over target pieces, for searches that use one."""
    tables: Tables | None = None
    """Candidate tables that the training was validated with, for a family that uses them."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """Tuned length penalties by label of search. Other searches keep their own length penalty."""
    members: tuple[Trained, ...] = ()
    """Further trainings of the same network, for an ensemble that averages probabilities."""
    companions: dict[str, System] = field(default_factory=dict)
    """Other systems that this system uses, by role."""
    alone: System | None = None
    """The same system with its default search alone. The new one shares its files, so that weights are stored once."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """Description of a system."""

    name: str
    """Name of the system."""
    family: str
    """Family of its network."""
    source_language: str
    """Language code of sources."""
    target_language: str
    """Language code of outputs."""
    searches: dict[str, SearchConfig]
    """Its searches by label."""
    task: TaskName = "translation"
    """Task of the system."""
    max_source_tokens: int | None = None
    """Longer sources are truncated to this number of tokens, as in training. None: the limit of the network."""
    default: str = ""
    """Label of the search that is used if no other is given. Empty: the first."""
    averaging: TrainingConfig | None = None
    """Recipe that selects the candidates of the training to average. None: those that the training averaged."""


STAGE: Stage[SystemInputs, SystemConfig, System] = Stage(
    name="system", version=5, run=Implementation(__name__), output=System, product=True
)
