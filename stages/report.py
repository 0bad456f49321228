"""Put scores, timings and curves on one page."""

from __future__ import annotations

from dataclasses import dataclass, field

from stages.artifacts import Hypotheses, Report, Scores, Text, Timings, Trained
from stages.stage import Stage, Work


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


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What the page says of the run."""

    title: str
    """Name of the run."""
    baseline: str
    """System that the others are compared with."""
    samples: int = 5
    """Sentences of each test set shown with all systems' hypotheses."""
    minimum_bleu: float = 0.0
    """The run fails when the baseline scores less on any test set: a check that the machinery learnt something."""


def run(inputs: ReportInputs, config: ReportConfig, work: Work) -> None: ...


STAGE = Stage(name="report", version=1, run=run, output=Report)
