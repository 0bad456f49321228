"""What a stage is: a function over typed artifacts, with a name, a version and the resources that it asks for."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from annotated_types import Ge, Gt

from stages.workers import Workers

log = logging.getLogger("fewstep")

MANIFEST = "manifest.json"
"""Written last into an artifact's directory: where it is, the artifact is finished."""

RECORDS = "records"
"""Folder of what is never compared: timings, logs, metrics, figures."""

CHECKPOINTS = "checkpoints"
"""Folder of what a later attempt resumes from; dropped once the step is done."""

STOP = "stop"
"""A file of this name in a step's `.partial` directory asks it to save its state and end."""


@dataclass(frozen=True)
class ExternalFile:
    """A file of the user's. It enters a fingerprint by content (`digest`), never by path."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Artifact:
    """What a step leaves: a directory, named by the fingerprint of all that went into it."""

    path: Path
    fingerprint: str

    @property
    def records(self) -> Path:
        return self.path / RECORDS


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one step may hold of the machines at once."""

    workers: Annotated[int, Ge(1)] | None = None
    """Processes that share the work (map actors or training workers); empty: one for training, else one per CPU."""
    cpus: Annotated[float, Gt(0)] | None = None
    """CPUs, and so threads, of each worker; empty: all CPUs for a training worker, else 1."""
    gpus: Annotated[float, Ge(0)] = 0.0
    """GPUs of each worker; a fraction shares one."""
    memory_gib: Annotated[float, Ge(0)] = 0.0
    """Memory that Ray reserves for each worker, in GiB; 0 reserves none."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Custom Ray resources of each worker, by name."""

    @property
    def threads(self) -> int:
        """Threads of one worker: its CPUs, at least one."""
        return max(1, int(self.cpus or 1))

    @property
    def alone(self) -> bool:
        """One worker, on CPUs: it needs no process beside the step's own."""
        return (self.workers or 1) == 1 and not self.gpus


@dataclass(frozen=True)
class Work:
    """What a running step is given: where to write, who helps, and how to report."""

    directory: Path
    """The step's `.partial` directory. A rerun finds in it what an earlier attempt left. What is in neither `RECORDS`
    nor `CHECKPOINTS` is its result."""
    attempt: str
    """Id of this attempt; temporary names carry it."""
    workers: Workers
    """Machines to spread the work over (`stages.workers`)."""
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
        """Write a file whole or not at all."""
        temporary = self.temporary(path)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)

    def write_json(self, path: Path, value: object) -> None:
        """Write JSON (sorted keys, one final newline) whole or not at all."""
        self.write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")

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


def _first_report(path: Path, attempt: str) -> dict[str, float]:
    """What the latest report says of the first one of its attempt; nothing if `attempt` has not reported yet."""
    try:
        latest = json.loads(path.read_text(encoding="utf-8"))
        return {key: latest[key] for key in ("first_done", "first_time")} if latest["attempt"] == attempt else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


I = TypeVar("I")  # noqa: E741  (the three letters of the design: inputs, config, output)
C = TypeVar("C")
O = TypeVar("O", bound=Artifact)  # noqa: E741


@dataclass(frozen=True)
class Implementation:
    """The function `run` of `<package>.run`, imported when it is first called, so that declaring a stage loads nothing heavy."""

    package: str

    def __call__(self, inputs: object, config: object, work: Work) -> None:
        """Fill `work.directory`."""
        import_module(f"{self.package}.run").run(inputs, config, work)


@dataclass(frozen=True)
class Stage(Generic[I, C, O]):
    """A verb of the pipeline. `run(inputs, config, work)` fills `work.directory`; wiring it wrongly is a mypy error.

    `version` is raised when the meaning of the output changes, so that older artifacts are not taken for it.
    A stage that `distributes` holds nothing itself, its workers do; any other is one worker, and so is one that is `alone`.
    """

    name: str
    version: int
    run: Callable[[I, C, Work], None]
    output: type[O]
    distributes: bool = False
    """Hands its work to `work.workers`."""
    trains: bool = False
    """Its workers are training workers: all must be there at once, and their number is part of its bits."""
    exclusive: bool = False
    """Nothing else may run beside it: it measures time."""
    product: bool = False
    """A run is for its artifact: a missing one is made again even where no later step needs it."""

    @property
    def module(self) -> str:
        """The module that holds the implementation; `run` names it without importing it."""
        return f"{self.run.package}.run" if isinstance(self.run, Implementation) else self.run.__module__
