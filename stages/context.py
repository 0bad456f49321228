"""The contexts that steps run in: one for a step's driver, one for the workers that it hands work to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from stages.artifacts import RECORDS, STOP
from stages.workers import Resources, Workers


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a running step writes and how it reports. A step's driver holds a `StepContext`, its workers a `WorkerContext`."""

    directory: Path
    """The step's `.partial` directory. A rerun finds in it what an earlier attempt left. What is in neither `RECORDS`
    nor `CHECKPOINTS` is its result."""
    attempt: str
    """Id of this attempt; temporary names carry it."""
    resources: Resources
    """What each worker holds; `workers` and `cpus` are filled in."""
    shard_cache: Path
    """Where decoded shards are kept across runs (`<store>/shards`)."""
    checkpoint_seconds: float = 120.0
    """Wall-clock seconds between resume checkpoints of a training."""
    microbatch_tokens: int = 0
    """Padded tokens that a training worker takes through the network at once, a matter of its memory; 0 takes its whole share."""

    def stop_requested(self) -> bool:
        """Has the driver asked this step to save its state and end?"""
        return (self.directory / STOP).exists()

    def records(self, *parts: str) -> Path:
        """Path below `records/`, its folder made."""
        path = self.directory.joinpath(RECORDS, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def temporary(self, path: Path) -> Path:
        """The name under which this attempt writes `path` before renaming it."""
        return path.with_name(f"{path.name}.{self.attempt}.tmp")

    def write_text(self, path: Path, text: str) -> None:
        """Write a file whole or not at all. It is synced when the step is committed: a file that a later attempt is to find
        goes through `kernels.durable`."""
        temporary = self.temporary(path)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)

    def write_json(self, path: Path, value: object) -> None:
        """Write JSON (sorted keys, one final newline) whole or not at all."""
        self.write_text(path, json_text(value))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line to `records/metrics.<attempt>.jsonl`: the values at `step` (update, shard or row)."""
        line = {"step": step, "time": time.time(), **values}
        with self.records(f"metrics.{self.attempt}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def progress(self, done: int, total: int, unit: str) -> None:
        """Record how far the step is and where this attempt's first report stood; `status` and the live display read it."""
        path, now = self.records("progress.json"), time.time()
        first = _first_report(path, self.attempt) or {"first_done": done, "first_time": now}
        self.write_json(path, {"done": done, "total": total, "unit": unit, "time": now, "attempt": self.attempt, **first})


@dataclass(frozen=True, kw_only=True)
class WorkerContext(Context):
    """The context of a worker: it can start no further workers."""


@dataclass(frozen=True, kw_only=True)
class StepContext(Context):
    """The context of a step's driver."""

    workers: Workers
    """Machines to spread the work over (`stages.workers`)."""

    def for_workers(self) -> WorkerContext:
        """Return the context to hand to this step's workers."""
        return WorkerContext(**{field.name: getattr(self, field.name) for field in fields(WorkerContext)})


def json_text(value: object) -> str:
    """Return JSON as files of a step hold it: sorted keys, one final newline."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _first_report(path: Path, attempt: str) -> dict[str, float]:
    """What the latest report says of the first one of its attempt; nothing if `attempt` has not reported yet."""
    try:
        latest = json.loads(path.read_text(encoding="utf-8"))
        return {key: latest[key] for key in ("first_done", "first_time")} if latest["attempt"] == attempt else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
