"""Read the training curves that a training left in its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from stages.artifacts import RECORDS

Series = list[tuple[int, float]]
"""(update, value), by update."""


def read_curves(directory: Path) -> dict[str, Series]:
    """Metric name -> series, from `records/metrics.*.jsonl` of an artifact.

    Where attempts overlap (one was killed and the next resumed before its end) the later one counts.
    """
    curves: dict[str, dict[int, float]] = {}
    for line in sorted(_lines(directory), key=lambda line: float(line["time"])):
        for name, value in line.items():
            if name not in ("step", "time") and isinstance(value, int | float):
                curves.setdefault(name, {})[int(line["step"])] = float(value)
    return {name: sorted(values.items()) for name, values in sorted(curves.items())}


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((directory / RECORDS).glob("metrics.*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(text)
            except ValueError:  # the last line of a killed attempt
                continue


def thinned(series: Series, points: int = 400) -> Series:
    """At most `points` of a long series, evenly spaced, each the mean of its stretch."""
    if len(series) <= points:
        return series
    bounds = [index * len(series) // points for index in range(points + 1)]
    parts = [series[start:end] for start, end in pairwise(bounds)]
    return [(part[len(part) // 2][0], sum(value for _, value in part) / len(part)) for part in parts]
