"""Analyse the DAGs of a Directed Acyclic Transformer: the alignment of targets, and statistics of vertices and transitions."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Artifact, System, Text, Trained
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DagAnalysis(Artifact):
    """An analysis of DAGs: `dag_analysis.json` (`stages.dag_analysis.statistics`), drawings in `records/figures`."""


@dataclass(frozen=True)
class DagAnalysisInputs:
    system: System
    text: Text
    trained: Trained | None = None
    """Training of the system that kept the weights of its first validation, which are then analysed as well."""


@dataclass(frozen=True, kw_only=True)
class DagAnalysisConfig:
    """Numbers of analysed and of drawn sentences."""

    sentences: int
    """Number of sentences whose DAGs are drawn, evenly spaced among the shorter half."""
    rows: int = 1000
    """Largest number of analysed pairs, evenly spaced."""


STAGE: Stage[DagAnalysisInputs, DagAnalysisConfig, DagAnalysis] = Stage(
    name="dag_analysis", version=1, run=Implementation(__name__), output=DagAnalysis, distributes=True
)
