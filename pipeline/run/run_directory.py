"""The directory of a run, `<store>/runs/<run id>/`: run.json, events.jsonl and a log for each step and attempt.

The run id derives from the config's name and the whole plan, so that repeating a command continues its run, with `--until` or
without.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fewstep.access import permission_problem
from pipeline.store.files import write_atomically
from pipeline.store.records import is_amount
from pipeline.store.run_file import RUN, SCHEMA, read_run, run_files
from pipeline.urls import masked_values
from stages.errors import ArtifactError, DataError, suggestion, unwritable
from stages.json_lines import read_json_lines

DRIVER_SECONDS = 30.0
"""Age of a run's heartbeat above which its driver counts as gone."""
HEARTBEAT_SECONDS = 5.0
"""Longest time between two heartbeats of a driver."""
Status = Literal["pending", "waiting", "running", "hit", "done", "failed", "skipped"]

_STATUS: dict[str, Status] = {
    "step_waiting": "waiting", "step_started": "running", "step_retried": "pending", "step_hit": "hit", "step_done": "done",
    "step_failed": "failed", "step_skipped": "skipped",
}  # fmt: skip

_EVENT: dict[str, Any] = {
    **dict.fromkeys(("event", "step", "step_attempt", "directory", "origin", "error", "status", "user", "revision", "until"), str),
    **dict.fromkeys(("time", "seconds", "lost_seconds", "ended"), (int, float)),
    "deaths": int,
    "lost": dict,
}
"""Types of the values of an event."""
_AMOUNTS = ("time", "seconds", "lost_seconds", "deaths")
LAST_TIME = 2.0**36
"""Unix time beyond which no event can be: that of the year 4147."""
_NEEDED = {"run_finished": ["status"], "step_started": ["step", "step_attempt"], "step_retried": ["step", "step_attempt"]}
"""Values that an event of a kind has in any case; other events about a step have `step`."""


@dataclass
class StepState:
    """The state of one step according to the events of a run."""

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
    """The reason why it failed, was retried or was skipped."""
    origin: str | None = None
    """Id of the run that made an artifact found in the store."""


@dataclass
class RunState:
    """The state of a run according to its events."""

    steps: dict[str, StepState]
    attempt: int = 0
    """Number of times that the run was started."""
    status: Literal["pending", "running", "done", "failed", "stopped"] = "pending"
    until: str | None = None
    """Step or stage with which it was asked to end (`--until`); None: with the whole plan."""
    started: float | None = None
    finished: float | None = None
    retried: int = 0
    """Attempts at steps that were repeated: those of a killed or stopped driver, and those that failed with a TransientError."""
    deaths: int = 0
    """Workers that died and whose shards other workers took over."""
    lost_seconds: float = 0.0
    """Seconds of work that were lost with these attempts and workers."""


@dataclass(frozen=True)
class Run:
    """A run directory. The commands `status` and `report` and the tracker read everything about a run from it."""

    path: Path

    @property
    def spec(self) -> dict[str, Any]:
        """The object in run.json: {schema, run_id, name, config, config_file, store, plan}.

        Raises ArtifactError for anything else in the file.
        """
        return read_run(self.path / RUN)

    def has_system(self, name: str) -> bool:
        """Return whether the config of the run has a system. One whose file cannot be read has none."""
        try:
            return name in self.spec["config"].get("systems", {})
        except ArtifactError:
            return False

    @property
    def store(self) -> Path:
        """The store that this run directory lies in."""
        return self.path.resolve().parent.parent

    def relocated(self, path: Path) -> Path:
        """Return `path`. A path in the store is followed to where the store is now: it may have been copied or moved."""
        try:
            return self.store / path.absolute().relative_to(self.spec["store"])
        except ValueError:
            return path

    @property
    def heartbeat(self) -> Path:
        """A file that the driver touches while it works."""
        return self.path / "heartbeat"

    def log(self, step: str, attempt: str) -> Path:
        """Return the log file of an attempt at a step."""
        return self.path / "logs" / f"{step.replace(':', '-').replace('/', '-')}.{attempt}.log"

    def create(self, spec: dict[str, Any]) -> None:
        """Write run.json, create the folders and point the link `latest` here."""
        (self.path / "logs").mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / RUN, json.dumps({"schema": SCHEMA, **spec}, indent=1, ensure_ascii=False) + "\n")
        latest = self.path.parent / f"latest.{secrets.token_hex(4)}"
        latest.symlink_to(self.path.name)
        os.replace(latest, self.path.parent / "latest")

    def write_event(self, event: str, **values: Any) -> None:
        """Append an event, without credentials, to events.jsonl in one write, so that two drivers can share the file.

        Raises StageError if the disk is full. A line that was cut off by a full disk is not continued.
        """
        path = self.path / "events.jsonl"
        line = (json.dumps(masked_values({"time": time.time(), "event": event, **values}), ensure_ascii=False) + "\n").encode()
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
        """Return all events so far, without values that are null. Lines that are incomplete or no events are skipped."""
        lines = read_json_lines(self.path / "events.jsonl")
        return [{name: one for name, one in line.value.items() if one is not None} for line in lines if _is_event(line.value)]

    def state(self) -> RunState:
        """Return the state that the events lead to."""
        state = RunState({entry["step"]: StepState(entry["step"]) for entry in self.spec["plan"]})
        for event in self.events():
            _fold(state, event)
        return state

    def driver_gone(self, state: RunState, now: float | None = None) -> bool:
        """Return whether the run should have a driver but its heartbeat has stopped."""
        if state.status != "running":
            return False
        try:
            return (time.time() if now is None else now) - self.heartbeat.stat().st_mtime > DRIVER_SECONDS
        except FileNotFoundError:
            return True


def find_run(store: Path, name: str) -> Run:
    """Return the run `name`: a run id, the path of a run directory, or `latest`. Raises DataError if there is no such run."""
    for path in (store / "runs" / name, Path(name)):
        if os.path.isfile(path / RUN):  # also false for a name that no file can have
            return Run(path.resolve())
        if problem := permission_problem(path / RUN):
            raise DataError(f"{name}: {problem}")
    runs = all_runs(store)
    known = [run.path.name for run in runs]
    expected = (
        f"{name}: expected a run of {store} ({', '.join(known) or 'it has no runs'}) or the path of a run directory, got neither"
    )
    holder = next((run.path.name for run in reversed(runs) if run.has_system(name)), "")
    raise DataError(
        expected + (f"; {name} is a system of {holder}: state the run before it" if holder else suggestion(name, known))
    )


def all_runs(store: Path) -> list[Run]:
    """Return all runs of a store, by name. Raises ArtifactError as `run_files` does."""
    return [Run(path.parent.resolve()) for path in run_files(store / "runs") if not path.parent.is_symlink()]


def _is_event(value: dict[str, Any]) -> bool:
    """Return whether an object has the values of an event, with their types."""
    kind = value.get("event")
    needed = ["event", "time", *_NEEDED.get(str(kind), ["step"] if kind in _STATUS else [])]
    typed = {name: kinds for name, kinds in _EVENT.items() if name in needed or value.get(name) is not None}
    fitting = all(isinstance(value.get(name), kinds) for name, kinds in typed.items())
    return fitting and all(is_amount(value[name]) for name in _AMOUNTS if name in typed) and value["time"] <= LAST_TIME


def _fold(state: RunState, event: dict[str, Any]) -> None:
    kind = event["event"]
    if kind.startswith("run_") and not event.get("first", True):
        return  # of a second driver, which does not own the run
    state.retried += len(event.get("lost", ()))
    state.deaths += event.get("deaths", 0)
    state.lost_seconds += event.get("lost_seconds", 0.0)
    if kind == "run_started":
        state.attempt = state.attempt + 1
        state.status = "running"
        state.until = event.get("until")
        state.started = event["time"]
        state.finished = None
        for step in state.steps.values():
            if step.status in ("running", "waiting", "failed", "skipped"):
                step.status = "pending"
    elif kind == "run_taken_over":
        state.status = "running"
        state.finished = None
        state.until = event.get("until")
    elif kind == "run_finished":
        state.status = event["status"]
        state.finished = event["time"]
    elif kind in _STATUS and event["step"] in state.steps:
        step = state.steps[event["step"]]
        if not _is_outdated(step, event):
            state.retried += step.status == "running" and kind in ("step_started", "step_retried")
            _fold_step(step, _STATUS[kind], event)


def _is_outdated(step: StepState, event: dict[str, Any]) -> bool:
    """Return whether an event is not about the latest attempt: another driver had taken the step over, or still has it."""
    if event["event"] == "step_waiting":
        return step.status == "running"
    return event["event"] == "step_retried" and step.attempts[-1:] != [event["step_attempt"]]


def _fold_step(step: StepState, status: Status, event: dict[str, Any]) -> None:
    if status == "hit" and step.status == "done":
        return  # this run made it, and a later attempt found it
    step.status = status
    step.directory = event.get("directory", step.directory)
    step.error = event.get("error")
    step.origin = event.get("origin", step.origin)
    if status == "running":
        step.attempts.append(event["step_attempt"])
        step.started = event["time"]
        step.finished = None
        step.seconds = None
    elif status in ("done", "failed"):
        step.finished = event["time"]
        step.seconds = event.get("seconds")
