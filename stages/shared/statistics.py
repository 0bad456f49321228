"""Quantiles and evenly spaced selections."""

from __future__ import annotations

import math
from collections.abc import Sequence

QUANTILES = 20
"""Number of intervals between the lowest value and the highest."""


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` indices spread evenly over `count` items; the first index is 0."""
    wanted = min(count, wanted)
    return [index * count // wanted for index in range(wanted)]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value such that at least `percent` % of the values are not larger."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def quantiles(values: Sequence[float]) -> list[float]:
    """Return `QUANTILES` + 1 of the values, from the lowest to the highest."""
    ordered = sorted(values)
    return [ordered[round(part * (len(ordered) - 1) / QUANTILES)] for part in range(QUANTILES + 1)]
