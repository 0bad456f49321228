"""Put everything that decoding needs into one directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from models.config.search import SearchConfig
from models.training.config import TrainingConfig
from stages.artifacts import Ngram, System, Tables, Trained, Tuned, Vocabulary
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class SystemInputs:
    trained: Trained
    vocabulary: Vocabulary
    ngram: Ngram | None = None
    """A language model over the target's pieces, for searches that ask it."""
    tables: Tables | None = None
    """Candidate tables, for a family that looks its words up: those that its training was validated with."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """Length penalties by the labels of searches; the others have their own."""
    members: tuple[Trained, ...] = ()
    """Further trainings of the same network: all write together, by the mean of their probabilities."""
    companions: dict[str, System] = field(default_factory=dict)
    """Other systems that this one works with, by role."""


@dataclass(frozen=True, kw_only=True)
class SystemConfig:
    """What a system says of itself."""

    name: str
    """Name of the system."""
    family: str
    """Family of its network."""
    source_language: str
    """Language code of what it reads."""
    target_language: str
    """Language code of what it writes."""
    searches: dict[str, SearchConfig]
    """Its searches by label."""
    task: TaskName = "translation"
    """What it does."""
    max_source_tokens: int | None = None
    """Longer sources are cut to their first so many tokens, as in training; None: only what the network cannot take is cut."""
    default: str = ""
    """Label of the search that it decodes with unless another is asked for. Empty: the first."""
    averaging: TrainingConfig | None = None
    """Which of the candidates that its training kept are averaged; None: those that the training averaged."""


STAGE: Stage[SystemInputs, SystemConfig, System] = Stage(
    name="system", version=3, run=Implementation(__name__), output=System, product=True
)
