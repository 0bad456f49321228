"""Score given translations with a loaded system."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from stages.artifacts import System
from stages.context import Context
from stages.decoding.driver import load

if TYPE_CHECKING:
    import models.bundle.system


class Scored(NamedTuple):
    """What a system holds of one pair."""

    log_probability: float | None
    """In nats; None where the pair was left out."""
    tokens: int
    """Of the target, with EOS."""
    left_out: str | None
    """Why there is no score: a side is `empty` or `over_long`, or the target `impossible`; None where there is one."""


def loaded(system: System, context: Context) -> models.bundle.system.System:
    """A system that is ready to score, in one worker of a step. Raises ArtifactError when its directory holds no whole one."""
    import torch

    torch.set_num_threads(context.resources.threads)
    return load(system, "cuda" if context.resources.gpus else "cpu")


def score_pairs(system: models.bundle.system.System, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
    """The log-probability of each target, or why it is left out, in the order of the pairs."""
    pairs = system.encode_pairs(sources, targets)
    reasons = [left_out(system, len(source), len(target)) for source, target in pairs]
    scores = iter(system.score_ids([pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]))
    found = [None if reason else next(scores) for reason in reasons]
    return [
        Scored(None, len(target) + 1, reason or "impossible")
        if score is None or not isfinite(score)
        else Scored(score, len(target) + 1, None)
        for (_, target), reason, score in zip(pairs, reasons, found, strict=True)
    ]


def left_out(system: models.bundle.system.System, source: int, target: int) -> str | None:
    """Why a pair of so many tokens cannot be scored."""
    if not (source and target):
        return "empty"
    return "over_long" if source > system.max_source_tokens or target > system.max_target_tokens else None
