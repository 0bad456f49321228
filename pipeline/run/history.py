"""The record of a run: `<store>/runs/<run id>/` with run.json, events.jsonl and a log per step and attempt.

The run id is made of the config's name and the plan, so that the same command continues the same run.
"""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipeline.store.artifacts import write_atomically
from stages.errors import ArtifactError, DataError, suggestion, unwritable

SCHEMA = 1
Status = Literal["pending", "waiting", "running", "hit", "done", "failed", "skipped"]

_STATUS: dict[str, Status] = {
    "step_waiting": "waiting",
    "step_started": "running",
    "step_retried": "pending",
    "step_hit": "hit",
    "step_done": "done",
    "step_failed": "failed",
    "step_skipped": "skipped",
}


@dataclass
class StepState:
    """What the events say of one step."""

    step: str
    status: Status = "pending"
    directory: str | None = None
    """Artifact or `.partial` directory, relative to the store."""
    attempts: list[str] = field(default_factory=list)
    """Ids of the attempts in this run, the latest last."""
    started: float | None = None
    finished: float | None = None
    seconds: float | None = None
    error: str | None = None
    """Why it failed, was retried or was skipped."""
    origin: str | None = None
    """Id of the run that made an artifact found in the store."""


@dataclass
class RunState:
    """What the events say of the whole run."""

    steps: dict[str, StepState]
    attempt: int = 0
    """How often the run was started."""
    status: Literal["pending", "running", "done", "failed", "stopped"] = "pending"
    started: float | None = None
    finished: float | None = None
    retried: int = 0
    """Attempts at steps that were repeated: those of a driver that was killed or stopped, and those that failed in passing."""
    deaths: int = 0
    """Workers that died while others went on with their shards."""
    lost_seconds: float = 0.0
    """Of work that went with all of them."""


@dataclass(frozen=True)
class Run:
    """A run directory. Everything about a run is read from it; `status`, `report` and the tracker need nothing else."""

    path: Path

    @property
    def spec(self) -> dict[str, Any]:
        """run.json: {schema, run_id, name, config, config_file, store, plan}. Raises ArtifactError for another schema."""
        data: dict[str, Any] = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        if data.get("schema") != SCHEMA:
            raise ArtifactError(
                f"{self.path / 'run.json'}: expected schema {SCHEMA}, got {data.get('schema')!r}; "
                "repeat the run command with this version"
            )
        return data

    @property
    def store(self) -> Path:
        """The store that this run directory lies in."""
        return self.path.resolve().parent.parent

    def relocated(self, path: Path) -> Path:
        """`path`; what lay in the store when the run was made is found in the store as it lies now, copied or moved."""
        try:
            return self.store / path.absolute().relative_to(self.spec["store"])
        except ValueError:
            return path

    @property
    def heartbeat(self) -> Path:
        """Touched by the driver while it is at work."""
        return self.path / "heartbeat"

    def log(self, step: str, attempt: str) -> Path:
        """Log file of one attempt at a step."""
        return self.path / "logs" / f"{step.replace(':', '-').replace('/', '-')}.{attempt}.log"

    def create(self, spec: dict[str, Any]) -> None:
        """Write run.json, make the folders and point `latest` here."""
        (self.path / "logs").mkdir(parents=True, exist_ok=True)
        write_atomically(
            self.path / "run.json", json.dumps({"schema": SCHEMA, **spec}, indent=1, ensure_ascii=False) + "\n", str(os.getpid())
        )
        latest = self.path.parent / f"latest.{os.getpid()}"
        latest.unlink(missing_ok=True)
        latest.symlink_to(self.path.name)
        os.replace(latest, self.path.parent / "latest")

    def write_event(self, event: str, **values: Any) -> None:
        """Append one line to events.jsonl, in one write, so that two drivers can share the file.

        Raises StageError when the disk is full. A line that was cut off then stands alone.
        """
        path = self.path / "events.jsonl"
        line = (json.dumps({"time": time.time(), "event": event, **values}, ensure_ascii=False) + "\n").encode()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise unwritable(path, error) from error
        finally:
            os.close(descriptor)

    def events(self) -> list[dict[str, Any]]:
        """All events so far; a line cut off by a crash is passed over."""
        try:
            lines = (self.path / "events.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        events = []
        for line in lines:
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return events

    def state(self) -> RunState:
        """The events folded into one state per step."""
        state = RunState({entry["step"]: StepState(entry["step"]) for entry in self.spec["plan"]})
        for event in self.events():
            _fold(state, event)
        return state


def find_run(store: Path, name: str) -> Run:
    """The run called `name`: a run id, the path of a run directory, or `latest`. Raises DataError when there is none."""
    for path in (store / "runs" / name, Path(name)):
        if (path / "run.json").is_file():
            return Run(path.resolve())
    known = [run.path.name for run in all_runs(store)]
    expected = f"{name}: expected a run of {store} ({', '.join(known) or 'it holds none'}) or the path of a run directory"
    raise DataError(expected + suggestion(name, known))


def all_runs(store: Path) -> list[Run]:
    """Return all runs of a store, by name."""
    return [Run(path.parent.resolve()) for path in sorted((store / "runs").glob("*/run.json")) if not path.parent.is_symlink()]


def _fold(state: RunState, event: dict[str, Any]) -> None:
    kind = event["event"]
    if kind.startswith("run_") and not event.get("first", True):
        return  # of a second driver, beside the one whose run this is
    state.retried += len(event.get("lost", ())) + (kind == "step_retried")
    state.deaths += event.get("deaths", 0)
    state.lost_seconds += event.get("lost_seconds", 0.0)
    if kind == "run_started":
        state.attempt, state.status = state.attempt + 1, "running"
        state.started, state.finished = event["time"], None
        for step in state.steps.values():
            if step.status in ("running", "waiting", "failed", "skipped"):
                step.status = "pending"
    elif kind == "run_finished":
        state.status, state.finished = event["status"], event["time"]
    elif kind in _STATUS and event["step"] in state.steps:
        _fold_step(state.steps[event["step"]], _STATUS[kind], event)


def _fold_step(step: StepState, status: Status, event: dict[str, Any]) -> None:
    if status == "hit" and step.status == "done":
        return  # made by this run, found again by a later attempt of it
    step.status = status
    step.directory = event.get("directory", step.directory)
    step.error = event.get("error")
    step.origin = event.get("origin", step.origin)
    if status == "running":
        step.attempts.append(event["step_attempt"])
        step.started, step.finished, step.seconds = event["time"], None, None
    elif status in ("done", "failed"):
        step.finished, step.seconds = event["time"], event.get("seconds")
