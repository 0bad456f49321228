"""A run directory with events and progress at chosen times."""

import json
import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pipeline.run.progress import Row, rows
from pipeline.run.run_directory import Run
from stages import context as step_context
from stages.context import StepContext
from stages.workers import LocalWorkers, Resources


def report(run: Run, done: int, moment: float, attempt: str = "a-1", total: int = 700) -> None:
    """Write the progress report of a step at a chosen time."""
    directory = run.store / "train" / "traintrain.partial"
    context = StepContext(
        directory=directory,
        attempt=attempt,
        workers=LocalWorkers(),
        resources=Resources(workers=1, cpus=1),
        shard_cache=run.store / "shards",
    )
    with patch.object(step_context, "time", SimpleNamespace(time=lambda: moment)):
        context.progress(done, total, "updates")


def event(run: Run, name: str, moment: float, **values: Any) -> None:
    """Write an event with a chosen time."""
    with (run.path / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": moment, "event": name, **values}) + "\n")


def training(run: Run, moment: float, attempt: str = "a-1") -> None:
    event(run, "run_started", moment, attempt=attempt.split("-")[0])
    event(run, "step_hit", moment, step="corpus:x", directory="corpus/corpuscorpus", origin="demo-0")
    event(run, "step_started", moment, step="train:x", step_attempt=attempt, directory="train/traintrain.partial")


def row_of(run: Run, step: str, now: float) -> Row:
    """Return the row of a step at `now`, while its driver is alive."""
    os.utime(run.heartbeat, (now, now))
    return next(row for row in rows(run, now)[0] if row.step == step)
