"""Reports of work that had to be done again."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.plan.step import Builder, Step
from pipeline.run.lost_work import deaths_file, interrupted, lost_seconds, worker_deaths
from pipeline.run.run_directory import Run
from pipeline.store.attempts import partial_directory
from stages.artifacts import Artifact
from stages.stage import Stage
from tests.pipeline.run_specs import plan_entry, run_spec


def stage(**kinds: Any) -> Stage[Any, Any, Any]:
    return Stage("toy", 1, lambda inputs, config, context: None, Artifact, **kinds)


def step(root: Path, **kinds: Any) -> Step:
    builder = Builder(root)
    builder.add(stage(**kinds), "a", None, None)
    return builder.plan().steps[0]


def touch(path: Path, moment: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (moment, moment))


def test_lost_seconds_begin_at_the_last_saved_state(tmp_path: Path) -> None:
    plain, mapped, trained = (step(tmp_path, distributes=d, trains=t) for d, t in ((False, False), (True, False), (True, True)))
    partial = partial_directory(plain.directory, "1")
    assert lost_seconds(plain, 100.0, 160.0) == 60.0
    touch(partial / "records/progress.json", 150.0)
    assert [lost_seconds(s, 100.0, 160.0) for s in (plain, mapped, trained)] == [60.0, 10.0, 60.0]  # only maps keep their shards
    touch(partial / "checkpoints/120", 120.0)
    touch(partial / "checkpoints/ray-x", 155.0)
    touch(partial / "checkpoints/180", 180.0)  # of a later attempt
    assert [lost_seconds(s, 100.0, 160.0) for s in (plain, mapped, trained)] == [40.0, 10.0, 40.0]


def test_worker_deaths_are_counted(tmp_path: Path) -> None:
    assert worker_deaths(tmp_path, "a-1") == {}
    path = tmp_path / deaths_file("a-1")
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"seconds": seconds}) + "\n" for seconds in (1.25, 2.5)))
    assert worker_deaths(tmp_path, "a-1") == {"deaths": 2, "lost_seconds": pytest.approx(3.75, abs=0.06)}
    assert worker_deaths(tmp_path, "a-2") == {}


def test_steps_of_a_killed_driver_are_found_as_interrupted(tmp_path: Path) -> None:
    one = step(tmp_path / "store")
    other = replace(one, name="toy:b")
    run = Run(tmp_path / "store/runs/x")
    run.create(run_spec(plan_entry("toy:a"), plan_entry("toy:b")))
    assert interrupted(run, [one, other]) == ({}, 0.0)
    run.write_event("run_started", attempt="a")
    run.write_event("step_started", step="toy:a", step_attempt="a-1", directory="x")
    touch(run.heartbeat, last := time.time() + 90)
    assert interrupted(run, [one, other]) == ({"toy:a": pytest.approx(90, abs=2)}, pytest.approx(last, abs=0.01))
    run.write_event("run_started", attempt="b", lost={"toy:a": 90.0}, lost_seconds=90.0)
    run.write_event("step_started", step="toy:b", step_attempt="b-1", directory="y")
    run.write_event("step_retried", step="toy:b", step_attempt="b-1", error="", lost_seconds=30.0)
    run.write_event("step_done", step="toy:a", step_attempt="b-1", deaths=2, lost_seconds=6.0)
    state = run.state()
    assert (state.retried, state.deaths, state.lost_seconds) == (2, 2, 126.0)
    assert interrupted(run, [one, other])[0] == {}


@pytest.mark.parametrize(
    ("end", "saved", "lost", "ended"),
    [
        ("killed", [40.0, 70.0], 20.0, 90.0),
        ("killed", [40.0, 93.0], 0.0, 93.0),  # after the last heartbeat, before the kill
        ("killed", [40.0, 300.0], 50.0, 90.0),  # of an attempt of another run, later on
        ("stopped", [40.0, 94.0], 2.0, 96.0),  # asked to stop, it saved its state and then recorded its end
        ("killed", [], 90.0, 90.0),
    ],
)
def test_lost_work_counts_from_the_newest_checkpoint(
    tmp_path: Path, end: str, saved: list[float], lost: float, ended: float
) -> None:
    one = step(tmp_path / "store", distributes=True, trains=True)
    run = Run(tmp_path / "store/runs/x")
    run.create(run_spec(plan_entry("toy:a")))
    began = 1_700_000_000.0
    events: list[dict[str, Any]] = [
        {"time": began, "event": "run_started", "attempt": "a"},
        {"time": began, "event": "step_started", "step": "toy:a", "step_attempt": "a-1"},
    ]
    if end == "stopped":
        events.append({"time": began + 96, "event": "run_finished", "status": "stopped"})
    (run.path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    touch(run.heartbeat, began + 90)
    for number, moment in enumerate(saved):
        touch(partial_directory(one.directory, "a-1") / f"checkpoints/{number}", began + moment)
    found, last = interrupted(run, [one])
    assert (found, last - began) == ({"toy:a": pytest.approx(lost, abs=0.06)}, pytest.approx(ended, abs=0.01))
