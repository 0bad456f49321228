"""The execution of a plan, without a shared disk too, and work that is lost."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.plan.step import Builder, Step
from pipeline.run import execute
from pipeline.run.apart import Ending, run_apart, send_inputs, take_in
from pipeline.run.attempt import StepAttempt
from pipeline.run.execute import required
from pipeline.run.lost_work import deaths_file, interrupted, lost_seconds, worker_deaths
from pipeline.run.run_directory import Run, all_runs
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, partial_directories, partial_directory
from pipeline.store.lease import step_lease
from stages.artifacts import Artifact
from stages.errors import ArtifactError, TransientError
from stages.stage import Stage
from stages.workers import Resources
from tests.pipeline.run.toys import CALLS, FAULTS, STAGE, ToyConfig, ToyInputs, config, diamond, go, text
from tests.pipeline.run_specs import plan_entry, run_spec


def test_steps_read_earlier_artifacts_and_are_executed_once(store: Store) -> None:
    plan = diamond(store)
    assert go(plan, store).failed == {}
    assert text(plan, "toy:d") == "abacd"
    report = go(plan, store)
    assert report.executed == ()
    assert CALLS == ["a", "b", "c", "d"]


def test_a_changed_parameter_executes_exactly_its_descendants(store: Store) -> None:
    go(diamond(store), store)
    CALLS.clear()
    report = go(diamond(store, left="B"), store)
    assert CALLS == ["B", "d"]
    assert set(report.executed) == {"toy:b", "toy:d"}


def test_a_missing_step_with_finished_descendants_is_not_executed(store: Store) -> None:
    plan = diamond(store)
    go(plan, store)
    first = plan.steps[0]
    shutil.rmtree(first.directory)
    todo, found = required(plan, store)
    assert ([s.name for s in todo], [s.name for s in found]) == ([], ["toy:b", "toy:c", "toy:d"])


def test_a_missing_product_is_executed_although_no_step_needs_it(store: Store) -> None:
    builder = Builder(store.root)
    a = builder.add(replace(STAGE, product=True), "a", ToyInputs(), ToyConfig("a"))
    builder.add(STAGE, "b", ToyInputs((a,)), ToyConfig("b"))
    plan = builder.plan()
    go(plan, store)
    shutil.rmtree(a.path)
    assert go(plan, store).executed == ("toy:a",)


def test_a_failed_step_skips_only_its_descendants(store: Store) -> None:
    FAULTS["b"] = [ValueError("boom")]
    plan = diamond(store)
    report = go(plan, store)
    assert CALLS == ["a", "b", "c"]
    assert list(report.failed) == ["toy:b"]
    assert "ValueError: boom" in str(report.failed["toy:b"])
    state = report.run.state()
    assert [s.status for s in state.steps.values()] == ["done", "failed", "done", "skipped"]
    assert "ValueError: boom" in report.run.log("toy:b", state.steps["toy:b"].attempts[0]).read_text()
    assert go(plan, store).failed == {}
    assert CALLS == ["a", "b", "c", "b", "d"]


def test_an_altered_input_fails_the_step_that_reads_it(store: Store) -> None:
    plan = diamond(store)
    go(plan.until("toy:b"), store)
    (plan.steps[0].directory / "text").write_text("x")
    os.utime(plan.steps[0].directory / "text", ns=(1, 1))
    report = go(plan, store)
    assert list(report.failed) == ["toy:c"]
    assert "expected sha256" in str(report.failed["toy:c"])
    assert "was altered: remove" in str(report.failed["toy:c"])


def test_a_complete_run_is_recorded_once(store: Store) -> None:
    first = go(diamond(store), store).run
    other = replace(config(store), name="other")
    run = execute.run(other, diamond(store), store, config_file="toy.yaml").run
    assert run.path != first.path
    state = run.state()
    assert state.status == "done"
    names = ("toy:a", "toy:b", "toy:c", "toy:d")
    assert {one.step: (one.status, one.origin) for one in state.steps.values()} == dict.fromkeys(names, ("hit", first.path.name))
    events = len(run.events())
    for part in (diamond(store), diamond(store).until("toy:b")):
        assert len(execute.run(other, part, store, config_file="toy.yaml").run.events()) == events


def test_a_run_that_ends_early_and_goes_on_is_one_run(store: Store) -> None:
    """The whole plan identifies it, not the part that a command makes of it."""
    part = go(diamond(store).until("toy:b"), store)
    state = part.run.state()
    assert (state.status, state.until, part.executed) == ("done", "toy:b", ("toy:a", "toy:b"))
    assert [step.status for step in state.steps.values()] == ["done", "done", "pending", "pending"]
    whole = go(diamond(store), store)
    assert (whole.run.path, whole.executed) == (part.run.path, ("toy:c", "toy:d"))
    assert [run.path for run in all_runs(store.root)] == [whole.run.path]
    state = whole.run.state()
    assert (state.status, state.until, state.attempt) == ("done", None, 2)
    assert {step.status for step in state.steps.values()} == {"done"}
    assert go(diamond(store, left="B").until("toy:a"), store).run.path != whole.run.path  # of another plan, though a part is equal


def test_a_part_that_other_runs_have_made_leaves_the_rest_of_its_run_open(store: Store) -> None:
    go(diamond(store), store)
    other = replace(config(store), name="other")
    execute.run(other, diamond(store).until("toy:b"), store, config_file="toy.yaml")
    run = execute.run(other, diamond(store), store, config_file="toy.yaml").run
    assert [step.status for step in run.state().steps.values()] == ["hit"] * 4
    assert run.state().until is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_a_process_interrupt_a_run(number: int) -> None:
    """A closed terminal sends SIGHUP."""
    before = signal.signal(number, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        with pytest.raises(KeyboardInterrupt), execute._interrupted_by_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_run_under_nohup_goes_on_without_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with execute._interrupted_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def attempt(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepAttempt:
    """An attempt at step b of a diamond, whose input is finished in the store of the driver."""
    go(diamond(store).until("toy:a"), store)
    step = next(step for step in diamond(store).steps if step.name == "toy:b")
    lease = step_lease(step.directory, "d-1", 60.0)
    assert lease.acquire()
    begin_attempt(step.directory, lease)
    monkeypatch.setenv("NODE", str(tmp_path / "node"))
    return StepAttempt(
        step=step, store=store.root, run_id="r", id="d-1", resources=Resources(workers=1, cpus=1), log=tmp_path / "log",
        checkpoint_seconds=1.0, num_shares=1, microbatch_tokens=0, silence_seconds=60.0, mirror=f"file://{tmp_path}/mirror",
        node_store="$NODE/store",
    )  # fmt: skip


def test_a_step_runs_in_the_store_of_its_machine(attempt: StepAttempt, store: Store, tmp_path: Path) -> None:
    send_inputs(attempt)
    ending = run_apart(attempt)
    assert ending.error is None
    assert not attempt.step.directory.exists()
    assert take_in(attempt, ending) is None
    assert text(diamond(store), "toy:b") == "ab"
    assert partial_directories(attempt.step.directory) == []
    assert "done in" in attempt.log.read_text()
    copy = Store(tmp_path / "node" / "store")
    assert {directory.parent.name for directory, problem in copy.verify_all() if problem is None} == {"toy"}


def test_a_machine_that_lost_its_disk_fetches_everything(attempt: StepAttempt, tmp_path: Path) -> None:
    send_inputs(attempt)
    run_apart(attempt)
    shutil.rmtree(tmp_path / "node")
    ending = run_apart(attempt)
    assert (ending.error, "done in" in ending.log) == (None, True)


def test_an_input_that_the_mirror_lacks_is_named(attempt: StepAttempt) -> None:
    ending = run_apart(attempt)
    assert isinstance(ending.error, ArtifactError)
    assert "toy:b: input before.0: expected" in str(ending.error)


def test_an_error_of_the_stage_comes_back_with_its_log(attempt: StepAttempt) -> None:
    send_inputs(attempt)
    FAULTS["b"] = [TransientError("worker lost")]
    ending = run_apart(attempt)
    error = take_in(attempt, ending)
    assert isinstance(error, TransientError)
    assert str(error) == "worker lost"
    assert "worker lost" in attempt.log.read_text()


def test_an_artifact_that_does_not_arrive_is_an_error(attempt: StepAttempt) -> None:
    assert "the mirror lacks the artifact" in str(take_in(attempt, Ending(None, "")))


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
