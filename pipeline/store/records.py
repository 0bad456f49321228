"""Readers of the records of a step: progress, metrics, scores, timings, figures. Records that do not exist yet read as empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeGuard

from pipeline.store.attempts import partial_directories, partial_directory
from pipeline.store.files import read_json
from stages.artifacts import MANIFEST, RECORDS
from stages.json_lines import read_json_lines

MAX_AMOUNT, MAX_INTEGER = 2.0**53, 2**1000
FIGURE_FOLDERS = ("figures", "tables")


@dataclass(frozen=True)
class Progress:
    """The latest progress report of a step."""

    done: int
    total: int
    unit: str
    time: float
    """Unix time of the report."""
    attempt: str
    first_done: int
    """`done` at this attempt's first report. Work of earlier attempts and caches does not count towards the rate."""
    first_time: float

    @property
    def rate(self) -> float | None:
        """Units per second since this attempt's first report; None until there is a second one."""
        return (self.done - self.first_done) / (self.time - self.first_time) if self.time > self.first_time else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds left at that rate; None while the rate is unknown."""
        return (self.total - self.done) / self.rate if self.rate else None


@dataclass(frozen=True)
class Point:
    """One line of a metrics file."""

    step: int
    time: float
    values: dict[str, float]
    end: int
    """Position in the file after this line, in bytes."""


def step_directory(store: Path, entry: Mapping[str, Any]) -> Path:
    """Return the artifact of a step of a plan entry, or the directory of its latest attempt while the step is unfinished."""
    finished = store / str(entry["stage"]) / str(entry["fingerprint"])
    if (finished / MANIFEST).is_file():
        return finished
    return (partial_directories(finished) or [partial_directory(finished, "none")])[-1]


def progress_of(directory: Path) -> Progress | None:
    """Return the latest progress report of a step, or None."""
    record = read_json(directory / RECORDS / "progress.json")
    values: dict[str, Any] = {field.name: record.get(field.name) for field in fields(Progress)}
    texts = ("unit", "attempt")
    valid = all(isinstance(value, str) if name in texts else is_amount(value) for name, value in values.items())
    return Progress(**values) if valid else None


def metric_files(directory: Path) -> list[Path]:
    """Return the metrics files of a step, one for each attempt, in order of time."""
    firsts = ((next(points_after(path, 0), None), path) for path in (directory / RECORDS).glob("metrics.*.jsonl"))
    return [path for _, path in sorted((first.time, path) for first, path in firsts if first is not None)]


def points_after(path: Path, position: int) -> Iterator[Point]:
    """Yield the points of a metrics file from byte `position` on, up to the first incomplete line."""
    for record, end in read_json_lines(path, position):
        try:
            step = int(record.pop("step"))
            moment = float(record.pop("time"))
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
        yield Point(step, moment, {name: float(value) for name, value in record.items() if _is_number(value)}, end)


def scores_of(directory: Path) -> dict[str, tuple[float, str]]:
    """Return the (score, signature) of each metric of a score step."""
    scores = {}
    for name, value in read_json(directory / "scores.json").items():
        if isinstance(value, dict) and _is_number(value.get("score")):
            scores[name] = (float(value["score"]), str(value.get("signature", "")))
    return scores


def timings_of(directory: Path) -> dict[str, float]:
    """Return the numbers of a benchmark, named `system/search/measure`. Lists, which hold single measurements, are left out."""
    return dict(_numbers("", read_json(directory / RECORDS / "benchmark.json").get("entries", {})))


def _numbers(prefix: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{prefix}/{key}" if prefix else str(key), item)
    elif _is_number(value):
        yield prefix, float(value)


def figures_of(directory: Path) -> list[Path]:
    """Return the figures and tables of a step, results and records alike."""
    folders = [root / kind for root in (directory, directory / RECORDS) for kind in FIGURE_FOLDERS]
    return sorted(path for folder in folders for path in folder.glob("*") if path.is_file() and path.suffix != ".tmp")


def is_amount(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number with which times and amounts can be computed: finite, and exact as a float."""
    return _is_number(value) and abs(value) <= MAX_AMOUNT


def _is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number that a float can be."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and not (isinstance(value, int) and abs(value) > MAX_INTEGER)
    )
