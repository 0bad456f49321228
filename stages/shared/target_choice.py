"""The choice of the output of a teacher that becomes the target of a source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stages.stage import OPERATIONAL

Choice = Literal["score", "reference", "mbr", "quality"]
QUALITY = {"quality": "below distillation.min_quality"}
"""Reason for a source without a target, and its name in reports."""


@dataclass(frozen=True, kw_only=True)
class TargetChoice:
    """The choice of a target among the outputs that pass the filters."""

    choose: Choice = "score"
    """The first output; the highest sentence BLEU against the target of the text; the least Bayes risk, which is the highest mean
    chrF, or score of a COMET model, against all outputs; or the highest score of a COMET model without references."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of sentence BLEU, for filters and for prompts."""
    min_quality: float | None = None
    """With `quality`: lowest score of a target."""
    comet_program: str = field(default="comet-score", metadata=OPERATIONAL)
    """The program `comet-score` of the environment of COMET: its path, or its name on PATH."""
