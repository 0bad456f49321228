"""The outputs of a search: as token ids, and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Hypothesis", "Translation"]


@dataclass(frozen=True)
class Hypothesis:
    """An output as target ids without BOS and EOS."""

    ids: list[int]
    score: float
    """The value that the search maximised, length penalty included; natural logarithm."""
    steps: int
    """Decoder calls until this sentence was finished."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """`margin`: the smallest gap, in nats, between a candidate that the search kept and one that it dropped; below 1e-4 it is a
    near-tie. If requested, `confidences`: one number per token, in nats. Searches that draft add their counts."""


class Translation(NamedTuple):
    """An output as text: a translation, or a summary by a system that was trained for that."""

    text: str
    score: float
    """The value that the search maximised, length penalty included; natural logarithm."""
    steps: int
    """Decoder calls until the sentence was finished; 0 for a blank line."""
    statistics: Mapping[str, Any]
    """Statistics of the search (see `Hypothesis.statistics`)."""
