"""Decode the training source with the teacher: sequence-level distillation (Kim and Rush 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from fewstep.config.search import LimitedSearch
from stages.artifacts import ExternalFile, System, Text
from stages.shared.scoring.options import TargetChoice
from stages.shared.target_filters import TargetFilters
from stages.stage import Implementation, Stage


@dataclass(frozen=True)
class DistillInputs:
    text: Text
    teacher: System
    comet: ExternalFile | None = None
    """Checkpoint of a COMET model, which chooses targets."""


@dataclass(frozen=True, kw_only=True)
class DistillConfig(TargetChoice):
    """Search of the teacher and selection of targets."""

    search: LimitedSearch
    """The teacher's search."""
    batch_tokens: int | None = 4000
    """Padded source tokens in a batch, EOS included. None: the fastest size for each kind of device."""
    max_ratio: float | None = None
    """Longest output that is kept, in tokens per token of its source, both with EOS. None: the limit of the search."""
    filters: TargetFilters | None = None
    """Filters of outputs; None for none."""


STAGE: Stage[DistillInputs, DistillConfig, Text] = Stage(
    name="distill", version=3, run=Implementation(__name__), output=Text, distributes=True
)
