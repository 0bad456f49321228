"""Decode one test set with one system and one search."""

from __future__ import annotations

from dataclasses import dataclass

from fewstep.config.search import SearchConfig
from stages.artifacts import ExternalFile, Hypotheses, System, Text, Tuned
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DecodeInputs:
    system: System
    text: Text
    tuned: Tuned | None = None
    """Tuned length penalty; None to use that of the search."""
    glossary: ExternalFile | None = None
    """Terms that are translated as stated (`fewstep.text.glossary`)."""


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Search and batch size of a test set."""

    search: SearchConfig
    """The search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch, EOS included."""


STAGE: Stage[DecodeInputs, DecodeConfig, Hypotheses] = Stage(
    name="decode", version=10, run=Implementation(__name__), output=Hypotheses, distributes=True
)
