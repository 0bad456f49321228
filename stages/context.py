"""The contexts of running steps: one for the driver of a step, one for its workers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from stages.artifacts import RECORDS, STOP
from stages.workers import Resources, Workers


@dataclass(frozen=True, kw_only=True)
class Context:
    """The directory of a running step, and its reports. The driver of a step has a `StepContext`, its workers a `WorkerContext`."""

    directory: Path
    """The `.partial` directory of this attempt. The next attempt takes over its shards and checkpoints. Files outside
    `RECORDS` and `CHECKPOINTS` are the result."""
    attempt: str
    """Id of this attempt, which is part of temporary names."""
    resources: Resources
    """Resources of each worker; `workers` and `cpus` are set."""
    shard_cache: Path
    """Directory of decoded shards that are kept across runs (`<store>/shards`)."""
    checkpoint_seconds: float = 120.0
    """Wall-clock seconds between resume checkpoints of a training."""
    num_shares: int = 0
    """Number of shares into which a training splits each batch, one or several for each worker; 0: one for each worker."""
    microbatch_tokens: int = 0
    """Padded tokens in one pass of a training worker, which its memory limits; 0 for its whole share of a batch."""

    def stop_requested(self) -> bool:
        """Return whether the step was asked to save its state and end, or another attempt has taken over its directory."""
        return (self.directory / STOP).exists() or not self.directory.exists()

    def records(self, *parts: str) -> Path:
        """Return a path below `records/`, and create its folder."""
        path = self.directory.joinpath(RECORDS, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def temporary(self, path: Path) -> Path:
        """Return the path that this attempt writes to before it is renamed to `path`."""
        return path.with_name(f"{path.name}.{self.attempt}.tmp")

    def write_text(self, path: Path, text: str) -> None:
        """Write a text file atomically.

        The file is synced when the step is committed. Write files that a later attempt needs with `durable`.
        """
        temporary = self.temporary(path)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)

    def write_json(self, path: Path, value: object) -> None:
        """Write a JSON file (sorted keys, one final newline) atomically."""
        self.write_text(path, json_text(value))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values at `step` (an update, shard or row) to `records/metrics.<attempt>.jsonl`."""
        line = {"step": step, "time": time.time(), **values}
        with self.records(f"metrics.{self.attempt}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def progress(self, done: int, total: int, unit: str) -> None:
        """Record the progress of the step, and the first report of this attempt, for `status` and the live display."""
        path = self.records("progress.json")
        now = time.time()
        first = _first_report(path, self.attempt) or {"first_done": done, "first_time": now}
        self.write_json(path, {"done": done, "total": total, "unit": unit, "time": now, "attempt": self.attempt, **first})


@dataclass(frozen=True, kw_only=True)
class WorkerContext(Context):
    """The context of a worker. A worker cannot start further workers."""


@dataclass(frozen=True)
class StepSpan:
    """A time that a run spent on a step."""

    step: str
    started: float
    """Unix time."""
    finished: float
    """Unix time; now if the step still runs."""
    outcome: Literal["done", "hit", "running", "failed", "kept", "lost"]
    """`hit`: the artifact was found in the store. Of an attempt that a later one continued, `kept` is the time up to its newest
    checkpoint, and `lost` the time after it."""


@dataclass(frozen=True, kw_only=True)
class StepContext(Context):
    """The context of a step's driver."""

    workers: Workers
    """The workers of the step (`stages.workers`)."""
    timeline: Callable[[], tuple[StepSpan, ...]] = tuple
    """A function that returns what the run has done so far, in order of time."""

    def for_workers(self) -> WorkerContext:
        """Return the context of the workers of this step."""
        return WorkerContext(**{field.name: getattr(self, field.name) for field in fields(WorkerContext)})


def json_text(value: object) -> str:
    """Return a value as JSON text with sorted keys and one final newline."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _first_report(path: Path, attempt: str) -> dict[str, float]:
    """The first report of the attempt, from its latest one; empty if `attempt` has not reported yet."""
    try:
        latest = json.loads(path.read_text(encoding="utf-8"))
        return {key: latest[key] for key in ("first_done", "first_time")} if latest["attempt"] == attempt else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
