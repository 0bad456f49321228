"""Training curves from the records of a training."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts import RECORDS
from stages.json_lines import read_json_lines

DEVICES = {"gpus": "GPU", "cpus": "CPU"}
"""Metrics with the number of devices of all workers of a training, and their names."""

Series = list[tuple[int, float]]
"""Pairs (update, value), sorted by update."""


def read_curves(directory: Path) -> dict[str, Series]:
    """Return the series of each metric in `records/metrics.*.jsonl` of an artifact.

    For an update that two attempts report (the second resumed before the end of the first), the later value is used.
    """
    curves: dict[str, dict[int, float]] = {}
    for line in sorted(_lines(directory), key=lambda line: float(line["time"])):
        for name, value in line.items():
            if name not in ("step", "time") and isinstance(value, int | float):
                curves.setdefault(name, {})[int(line["step"])] = float(value)
    return {name: sorted(values.items()) for name, values in sorted(curves.items())}


class Costs(NamedTuple):
    """The device-hours of a training."""

    device: str
    """`GPU` or `CPU`."""
    hours: dict[int, float]
    """Hours of all devices together up to an update, with validations and with work that was lost."""

    def over(self, series: Series) -> list[tuple[float, float]]:
        """Return a series by hours in place of updates."""
        return [(self.hours[update], value) for update, value in series if update in self.hours]


def read_costs(directory: Path) -> Costs | None:
    """Return the device-hours of a training from its metrics; None if they do not state devices, or state both kinds.

    An attempt begins with a line that states the number of its `gpus` or `cpus`. The time between two attempts does not count.
    """
    hours = {}
    kinds = set()
    spent = 0.0
    count = 0.0
    last = 0.0
    for line in sorted(_lines(directory), key=lambda line: float(line["time"])):
        if kind := next((name for name in DEVICES if name in line), None):
            count = float(line[kind])
            kinds.add(kind)
        else:
            spent += (float(line["time"]) - last) / 3600 * count
        last = float(line["time"])
        hours[int(line["step"])] = spent
    return Costs(DEVICES[kinds.pop()], hours) if len(kinds) == 1 else None


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((directory / RECORDS).glob("metrics.*.jsonl")):
        yield from (line.value for line in read_json_lines(path))


def thinned(series: Series, points: int = 400) -> Series:
    """Reduce a series to at most `points` values, each the mean of an interval; the intervals have about equal numbers of
    values."""
    if len(series) <= points:
        return series
    bounds = [index * len(series) // points for index in range(points + 1)]
    parts = [series[start:end] for start, end in pairwise(bounds)]
    return [(part[len(part) // 2][0], sum(value for _, value in part) / len(part)) for part in parts]
