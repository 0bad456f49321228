"""Analyse the lattices of a sequence-to-lattice system: ranks before the search, and the latency of each part of decoding."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import Artifact, System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class LatticeAnalysis(Artifact):
    """An analysis of lattices.

    `lattice_analysis.json`: candidates; sentences; impossible (sentences without a path); tokens and bigrams (on best paths,
    counted by the upper end 1, 2, 4, ... of the class of their rank before the search). `records/latency.json`: milliseconds by
    part.
    """


@dataclass(frozen=True)
class LatticeAnalysisInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class LatticeAnalysisConfig:
    """Numbers of analysed and of timed sentences."""

    name: str
    """Name of the system and the text in tables and figures."""
    timed: int
    """Number of sentences that are timed part by part, evenly spaced."""
    rows: int = 1000
    """Largest number of sentences whose paths are analysed, evenly spaced."""


STAGE: Stage[LatticeAnalysisInputs, LatticeAnalysisConfig, LatticeAnalysis] = Stage(
    name="lattice_analysis", version=1, run=Implementation(__name__), output=LatticeAnalysis, exclusive=True
)
