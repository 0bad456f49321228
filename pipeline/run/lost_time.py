"""What faults cost: the seconds of work that had to be done again, for the record of the run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.plan.step import Step
from pipeline.run.history import Run
from pipeline.store.artifacts import Store
from stages.artifacts import CHECKPOINTS, RECORDS


def deaths_file(attempt: str) -> Path:
    """Where a step's attempt tells the deaths of its workers, below the step's directory."""
    return Path(RECORDS) / f"deaths.{attempt}.jsonl"


def told_deaths(directory: Path, attempt: str) -> dict[str, Any]:
    """Of an attempt: how many workers died while others went on, and the seconds of work that went with them; empty for none."""
    try:
        lines = (directory / deaths_file(attempt)).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {"deaths": len(lines), "lost_seconds": round(sum(json.loads(line)["seconds"] for line in lines), 1)}


def lost_seconds(step: Step, started: float, ended: float | None = None) -> float:
    """Seconds of an attempt, begun at `started`, that went by since the last thing which a further attempt need not do again."""
    ended = time.time() if ended is None else ended
    kept = [moment for moment in _kept(step) if moment <= ended]
    return round(max(0.0, ended - max([started, *kept])), 1)


def _kept(step: Step) -> Iterator[float]:
    """When the step kept something: a checkpoint; where shards are kept one by one, the last progress."""
    partial = Store.partial(step.directory)
    paths = list((partial / CHECKPOINTS).glob("*"))
    if step.stage.distributes and not step.stage.trains:
        paths.append(partial / RECORDS / "progress.json")
    for path in paths:
        try:
            if not path.name.startswith("ray-"):  # Ray's own
                yield path.stat().st_mtime
        except OSError:  # it has just been replaced
            continue


def interrupted(run: Run, steps: list[Step]) -> dict[str, float]:
    """Steps that an earlier driver of the run left at work -> seconds of work that went with it."""
    try:
        ended = run.heartbeat.stat().st_mtime
    except OSError:
        return {}
    states = run.state().steps
    left = [step for step in steps if states[step.name].status == "running"]
    return {step.name: lost_seconds(step, states[step.name].started or ended, ended) for step in left}
