"""Translate one test set with one system and one search."""

from __future__ import annotations

from dataclasses import dataclass

from models.config.search import SearchConfig
from stages.artifacts import Hypotheses, System, Text, Tuned
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DecodeInputs:
    system: System
    text: Text
    tuned: Tuned | None = None
    """The search's length penalty; none: its own."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a test set is decoded."""

    search: SearchConfig
    """The search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


STAGE: Stage[DecodeInputs, DecodeConfig, Hypotheses] = Stage(
    name="decode", version=2, run=Implementation(__name__), output=Hypotheses, distributes=True
)
