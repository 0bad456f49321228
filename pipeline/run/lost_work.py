"""Work that was lost to faults and had to be repeated, in seconds, for the record of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.plan.step import Step
from pipeline.run.run_directory import HEARTBEAT_SECONDS, Run
from pipeline.store.attempts import partial_directories
from stages.artifacts import CHECKPOINTS, RECORDS
from stages.json_lines import read_json_lines


def deaths_file(attempt: str) -> Path:
    """Return the file in which an attempt at a step records the deaths of its workers, relative to the step's directory."""
    return Path(RECORDS) / f"deaths.{attempt}.jsonl"


def worker_deaths(directory: Path, attempt: str) -> dict[str, Any]:
    """Return the number of workers that died during an attempt that went on, and the seconds of work lost with them.

    Empty if no worker died.
    """
    with suppress(OSError):
        found = [line.value.get("seconds") for line in read_json_lines(directory / deaths_file(attempt))]
        seconds = [value for value in found if isinstance(value, int | float)]
        return {"deaths": len(seconds), "lost_seconds": round(sum(seconds), 1)} if seconds else {}
    return {}


def lost_seconds(step: Step, started: float, ended: float) -> float:
    """Return the seconds between the last saved state of an attempt, which began at `started`, and its end."""
    saved = [moment for moment in _save_times(step) if moment <= ended]
    return round(max(0.0, ended - max([started, *saved])), 1)


def _save_times(step: Step) -> Iterator[float]:
    """Yield the times of checkpoints, and of the latest progress of a step that saves shard by shard."""
    paths: list[Path] = []
    for partial in partial_directories(step.directory):
        paths += (partial / CHECKPOINTS).glob("*")
        if step.stage.distributes and not step.stage.trains:
            paths.append(partial / RECORDS / "progress.json")
    for path in paths:
        try:
            if not path.name.startswith("ray-"):  # Ray's own files
                yield path.stat().st_mtime
        except OSError:  # it was replaced meanwhile
            continue


def interrupted(run: Run, steps: list[Step]) -> tuple[dict[str, float], float]:
    """Return the lost seconds of each step that an earlier driver of the run left unfinished, and the Unix time when it ended.

    They count from the newest checkpoint. A driver that was asked to stop recorded its end, after its steps had saved their states.
    One that was killed ended up to `HEARTBEAT_SECONDS` after its last heartbeat, and a checkpoint of that time counts.
    """
    state = run.state()
    running = [step for step in steps if state.steps[step.name].status == "running"]
    try:
        heartbeat = run.heartbeat.stat().st_mtime
    except OSError:
        return {}, 0.0
    saved = [moment for step in running for moment in _save_times(step) if moment <= heartbeat + HEARTBEAT_SECONDS]
    ended = max([heartbeat, *saved, *([] if state.finished is None else [state.finished])])
    return {step.name: lost_seconds(step, state.steps[step.name].started or ended, ended) for step in running}, ended
