"""Analyse the slots of a parallel system: the accuracy of tokens under the best assignment, and the recall of candidates."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Artifact, System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class ParallelAnalysis(Artifact):
    """An analysis of slots: `parallel_analysis.json` (`stages.parallel_analysis.run`)."""


@dataclass(frozen=True)
class ParallelAnalysisInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class ParallelAnalysisConfig:
    """Number of analysed pairs."""

    rows: int = 1000
    """Largest number of analysed pairs, evenly spaced."""


STAGE: Stage[ParallelAnalysisInputs, ParallelAnalysisConfig, ParallelAnalysis] = Stage(
    name="parallel_analysis", version=1, run=Implementation(__name__), output=ParallelAnalysis, distributes=True
)
