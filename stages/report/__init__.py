"""Write the report of a run: scores, timings, training curves and analyses on one page."""

from __future__ import annotations

from dataclasses import dataclass, field

from stages.artifacts import (
    Artifact,
    Hypotheses,
    Report,
    Scores,
    System,
    Text,
    Timings,
    Tokens,
    Trained,
    Tuned,
)
from stages.shared.tasks import TaskName
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class Evaluated:
    """A row of the results: a system with one search on one test set."""

    system: str
    search: str
    test: str
    hypotheses: Hypotheses
    scores: Scores

    @property
    def entry(self) -> str:
        """The name of the row: `system/search`."""
        return f"{self.system}/{self.search}"


@dataclass(frozen=True)
class ReportInputs:
    corpus: Text
    """The training text with its ledger."""
    tests: dict[str, Text]
    trainings: dict[str, Trained]
    evaluated: tuple[Evaluated, ...]
    timings: dict[str, Timings] = field(default_factory=dict)
    """Timings by test set."""
    cut: dict[str, Tokens] = field(default_factory=dict)
    """If long sources are truncated: the tokens of the training text (`train`) and of each test set."""
    counts: dict[str, Artifact] = field(default_factory=dict)
    """Links, candidate tables and language models, by step."""
    analyses: dict[str, dict[str, dict[str, Artifact]]] = field(default_factory=dict)
    """Analyses by stage, text (`train` and test sets; empty for a stage that reads none) and system."""
    tuned: dict[str, Tuned] = field(default_factory=dict)
    """Tuned length penalties by `system/search`."""
    imported: System | None = None
    """Teacher of another toolkit."""


@dataclass(frozen=True, kw_only=True)
class SystemPair:
    """Two systems with the same generation order: one writes several tokens a step, the other writes one."""

    parallel: str
    """System that writes several tokens a step."""
    sequential: str
    """System that writes one token a step."""
    step_size: int
    """Tokens in a step of `parallel`."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Contents of the report."""

    title: str
    """Name of the run."""
    baseline: str
    """Result that the others are compared with: `system/search`."""
    task: TaskName = "translation"
    """Task of the systems; determines the metric of the comparisons."""
    samples: int = 5
    """Sources of each test set that are shown with the hypotheses of all systems."""
    min_bleu: float = 0.0
    """Lowest BLEU of the baseline on each test set; the step fails if the baseline scores less."""
    min_rouge: float = 0.0
    """Lowest ROUGE-L of the baseline on each test set."""
    seeds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Systems that differ in their seed alone, by the name of the first of them, which is among them."""
    system_pairs: dict[str, SystemPair] = field(default_factory=dict)
    """Pairs of systems from which the mutual information of the tokens of a step is estimated, by name."""


STAGE: Stage[ReportInputs, ReportConfig, Report] = Stage(
    name="report", version=8, run=Implementation(__name__), output=Report, reads_records=True
)
