"""Look into the lattices of a sequence-to-lattice system: what the search changes, and what each part of decoding takes."""

from __future__ import annotations

from dataclasses import dataclass

from stages.artifacts import LatticeAnalysis, System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class LatticeAnalysisInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class LatticeAnalysisConfig:
    """What is looked at."""

    name: str
    """What tables and figures call the system and the text."""
    timed: int
    """Sentences that are timed part by part, evenly spaced."""
    rows: int = 1000
    """Sentences whose paths are looked at, at most, evenly spaced."""


STAGE: Stage[LatticeAnalysisInputs, LatticeAnalysisConfig, LatticeAnalysis] = Stage(
    name="lattice_analysis", version=1, run=Implementation(__name__), output=LatticeAnalysis, exclusive=True
)
"""Ranks before the search, latency by part."""
