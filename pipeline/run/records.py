"""What a step leaves for its watchers: curves, progress, scores, timings, pictures. Only reads; what is not there yet is empty."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pipeline.run.history import Run, RunState
from pipeline.store.artifacts import Store
from stages.artifacts import MANIFEST, RECORDS

DRIVER_SECONDS = 30.0
"""A driver touches its run's heartbeat every few seconds; one that has not done so for this long is gone."""

PICTURES = ("figures", "tables")


@dataclass(frozen=True)
class Progress:
    """How far a step is."""

    done: int
    total: int
    unit: str
    time: float
    """Unix time at which it was so."""
    attempt: str
    first_done: int
    """How far the step was at this attempt's first report: what earlier attempts or caches did counts into no rate."""
    first_time: float

    @property
    def rate(self) -> float | None:
        """Units a second since this attempt's first report; None while there is but that one."""
        return (self.done - self.first_done) / (self.time - self.first_time) if self.time > self.first_time else None

    @property
    def seconds_left(self) -> float | None:
        """At that rate; None while it cannot be told."""
        return (self.total - self.done) / self.rate if self.rate else None


@dataclass(frozen=True)
class Point:
    """One line of a metrics file."""

    step: int
    time: float
    values: dict[str, float]
    end: int
    """Bytes of the file up to and with this line."""


def driver_gone(run: Run, state: RunState, now: float | None = None) -> bool:
    """Should a driver be at work on this run, and is none?"""
    if state.status != "running":
        return False
    try:
        return (time.time() if now is None else now) - run.heartbeat.stat().st_mtime > DRIVER_SECONDS
    except FileNotFoundError:
        return True


def step_directory(store: Path, entry: Mapping[str, Any]) -> Path:
    """Where the step of a plan entry lies now: its artifact, or the `.partial` directory while there is none."""
    finished = store / str(entry["stage"]) / str(entry["fingerprint"])
    return finished if (finished / MANIFEST).is_file() else Store.partial(finished)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one if there is none (yet)."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def progress_of(directory: Path) -> Progress | None:
    """What the step last said of its progress."""
    record = read_json(directory / RECORDS / "progress.json")
    try:
        return Progress(**{field.name: record[field.name] for field in fields(Progress)})
    except KeyError:
        return None


def metric_files(directory: Path) -> list[Path]:
    """The step's metrics files, one an attempt, the earliest attempt first."""
    firsts = ((next(points_after(path, 0), None), path) for path in (directory / RECORDS).glob("metrics.*.jsonl"))
    return [path for _, path in sorted((first.time, path) for first, path in firsts if first is not None)]


def points_after(path: Path, position: int) -> Iterator[Point]:
    """Whole lines of a metrics file from byte `position` on; a line that is still being written, or was cut off, is left."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                position += len(line)
                point = _point(line, position)
                if point is not None:
                    yield point
    except FileNotFoundError:
        return


def _point(line: bytes, end: int) -> Point | None:
    try:
        record = json.loads(line)
        step, moment = int(record.pop("step")), float(record.pop("time"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Point(step, moment, {name: float(value) for name, value in record.items() if _is_number(value)}, end)


def scores_of(directory: Path) -> dict[str, tuple[float, str]]:
    """Metric -> (score, signature) of a score step."""
    scores = {}
    for name, value in read_json(directory / "scores.json").items():
        if isinstance(value, dict) and _is_number(value.get("score")):
            scores[name] = (float(value["score"]), str(value.get("signature", "")))
    return scores


def timings_of(directory: Path) -> dict[str, float]:
    """The figures of a benchmark, named `system/search/figure`; lists (the single measurements) are left out."""
    return dict(_numbers("", read_json(directory / RECORDS / "benchmark.json").get("entries", {})))


def _numbers(prefix: str, value: object) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(f"{prefix}/{key}" if prefix else str(key), item)
    elif _is_number(value):
        yield prefix, float(value)  # type: ignore[arg-type]


def pictures_of(directory: Path) -> list[Path]:
    """Figures and tables that a step drew, as results or as records."""
    folders = [root / kind for root in (directory, directory / RECORDS) for kind in PICTURES]
    return sorted(path for folder in folders for path in folder.glob("*") if path.is_file() and path.suffix != ".tmp")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
