"""Translate one test set with one system and one search."""

from __future__ import annotations

from dataclasses import dataclass

from models.stepwise.config import StepwiseSearch
from stages.artifacts import Hypotheses, System, Text
from stages.stage import Stage, Work


@dataclass(frozen=True)
class DecodeInputs:
    system: System
    text: Text


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How a test set is decoded."""

    search: StepwiseSearch
    """The search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


def run(inputs: DecodeInputs, config: DecodeConfig, work: Work) -> None: ...


STAGE = Stage(name="decode", version=1, run=run, output=Hypotheses, distributes=True)
