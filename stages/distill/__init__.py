"""Decode the training source with the teacher: sequence-level distillation (Kim and Rush 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fewstep.config.search import LimitedSearch
from stages.artifacts import System, Text
from stages.shared.target_filters import TargetFilters
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DistillInputs:
    text: Text
    teacher: System


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Search of the teacher and selection of targets."""

    search: LimitedSearch
    """The teacher's search."""
    batch_tokens: int | None = 4000
    """Padded source tokens in a batch, EOS included. None: the fastest size for each kind of device."""
    choose: Literal["score", "reference", "mbr"] = "score"
    """Selection of the target among the n best hypotheses: the highest score of the search, the highest sentence BLEU against the
    target of the text, or the highest mean chrF to all of them."""
    max_ratio: float | None = None
    """Longest output that is kept, in tokens per token of its source, both with EOS. None: the limit of the search."""
    target_language: str = ""
    """Language code of the target, for the tokeniser of sentence BLEU and for filters."""
    filters: TargetFilters | None = None
    """Filters of outputs; None for none."""


STAGE: Stage[DistillInputs, DistillConfig, Text] = Stage(
    name="distill", version=2, run=Implementation(__name__), output=Text, distributes=True
)
