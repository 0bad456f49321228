"""Look into the graphs of a Directed Acyclic Transformer: how well targets go with them, and what they consist of."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import DagAnalysis, System, Text, Trained
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DagAnalysisInputs:
    system: System
    text: Text
    trained: Trained | None = None
    """The system's training, where it kept the weights of its first validation: the same is told of these."""


@dataclass(frozen=True, kw_only=True)
class DagAnalysisConfig:
    """What is looked at."""

    sentences: int
    """Sentences whose graphs are drawn: evenly spaced among the shorter half."""
    rows: int = 1000
    """Pairs that are counted at most, evenly spaced."""


STAGE: Stage[DagAnalysisInputs, DagAnalysisConfig, DagAnalysis] = Stage(
    name="dag_analysis", version=1, run=Implementation(__name__), output=DagAnalysis, distributes=True
)
"""Accuracy of the best alignment, passing probabilities, posteriors, drawings."""
