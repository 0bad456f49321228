"""Score given translations with a loaded system."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

import fewstep
from models.bundle.likelihood import encode_pairs, score_ids


class Scored(NamedTuple):
    """The log-probability of one pair."""

    log_probability: float | None
    """Log-probability in nats; None if the pair is left out."""
    tokens: int
    """Tokens of the target, with EOS."""
    left_out: str | None
    """Reason why there is no score: a side is `empty` or `over_long`, or the target is `impossible`. None if there is a score."""


def score_pairs(system: fewstep.System, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
    """Return the log-probability of each target, or the reason why it is left out, in the order of the pairs."""
    pairs = encode_pairs(system, sources, targets)
    reasons = [left_out(system, len(source), len(target)) for source, target in pairs]
    scores = iter(score_ids(system, [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]))
    found = [None if reason else next(scores) for reason in reasons]
    return [
        Scored(None, len(target) + 1, reason or "impossible")
        if score is None or not isfinite(score)
        else Scored(score, len(target) + 1, None)
        for (_, target), reason, score in zip(pairs, reasons, found, strict=True)
    ]


def left_out(system: fewstep.System, source: int, target: int) -> str | None:
    """Return why a pair cannot be scored, given the numbers of tokens of its sides; None if it can."""
    if not (source and target):
        return "empty"
    return "over_long" if source > system.max_source_tokens or target > system.max_target_tokens else None
