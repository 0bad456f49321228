"""Decode the training source with the teacher: sequence-level distillation (Kim and Rush 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.config.search import LimitedSearch
from stages.artifacts import System, Text
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DistillInputs:
    text: Text
    teacher: System


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """How the teacher decodes the training source."""

    search: LimitedSearch
    """The teacher's search."""
    batch_tokens: int | None = 4000
    """Padded source tokens in a batch; None: what each kind of device is quickest with."""
    choose: Literal["score", "reference"] = "score"
    """Which of the n best becomes the target: the search's first, or the one nearest to the target of the text."""
    max_ratio: float | None = None
    """Longest output that is kept, in tokens per token of its source, both with EOS; None: what the search allows."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of the sentence BLEU that nearness is measured by."""


STAGE: Stage[DistillInputs, DistillConfig, Text] = Stage(
    name="distill", version=2, run=Implementation(__name__), output=Text, distributes=True
)
