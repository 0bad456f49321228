"""Translate the training source with the teacher: sequence-level distillation (Kim and Rush 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from models.stepwise.config import StepwiseSearch
from stages.artifacts import System, Text
from stages.stage import Stage, Work


@dataclass(frozen=True)
class DistillInputs:
    text: Text
    teacher: System


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """How the teacher decodes the training source."""

    search: StepwiseSearch
    """The teacher's search."""
    batch_tokens: int = 4000
    """Padded source tokens in a batch."""


def run(inputs: DistillInputs, config: DistillConfig, work: Work) -> None: ...


STAGE = Stage(name="distill", version=1, run=run, output=Text, distributes=True)
