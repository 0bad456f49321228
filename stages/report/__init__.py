"""Put scores, timings and curves on one page."""

from __future__ import annotations

from dataclasses import dataclass, field

from stages.artifacts import (
    Artifact,
    Contrasted,
    DagAnalysis,
    Hypotheses,
    LatticeAnalysis,
    Likelihood,
    Report,
    Scores,
    Text,
    Timings,
    Tokens,
    Trained,
    Tuned,
)
from stages.score.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class Evaluated:
    """One row of the results: a system with one search on one test set."""

    system: str
    search: str
    test: str
    hypotheses: Hypotheses
    scores: Scores


@dataclass(frozen=True)
class ReportInputs:
    corpus: Text
    """Training text, with its ledger."""
    tests: dict[str, Text]
    trainings: dict[str, Trained]
    evaluated: tuple[Evaluated, ...]
    timings: dict[str, Timings] = field(default_factory=dict)
    """By test set."""
    cut: dict[str, Tokens] = field(default_factory=dict)
    """Where long sources are cut: the tokens of the training text (`train`) and of each test set."""
    counts: dict[str, Artifact] = field(default_factory=dict)
    """By step: links, tables, language models."""
    likelihoods: dict[str, dict[str, Likelihood]] = field(default_factory=dict)
    """By test set and system."""
    contrasts: dict[str, Contrasted] = field(default_factory=dict)
    """By system."""
    dag_analyses: dict[str, dict[str, DagAnalysis]] = field(default_factory=dict)
    """By text (`train` and test sets) and system."""
    lattice_analyses: dict[str, dict[str, LatticeAnalysis]] = field(default_factory=dict)
    """By test set and system."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """By system and search: length penalties that were tuned."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """Two systems that write the same arrangement, one of them several tokens at a time."""

    parallel: str
    """System that writes several tokens a step."""
    sequential: str
    """System that writes one token a step."""
    step_size: int
    """Tokens that `parallel` writes together."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What the page says of the run."""

    title: str
    """Name of the run."""
    baseline: str
    """Result that the others are compared with: `system/search`."""
    task: TaskName = "translation"
    """What was learnt."""
    samples: int = 5
    """Sources of each test set shown with all systems' hypotheses."""
    min_bleu: float = 0.0
    """The run fails when the baseline scores less on any test set: a check that the machinery learnt something."""
    min_rouge: float = 0.0
    """The same in ROUGE-L."""
    together: dict[str, Together] = field(default_factory=dict)
    """Pairs of systems that the mutual information of tokens written together is estimated from, by name."""


STAGE: Stage[ReportInputs, ReportConfig, Report] = Stage(name="report", version=4, run=Implementation(__name__), output=Report)
