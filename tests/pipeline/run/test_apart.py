"""Attempts on machines with stores of their own."""

import shutil
from pathlib import Path

import pytest

from pipeline.run.apart import Ending, run_apart, send_inputs, take_in
from pipeline.run.attempt import StepAttempt
from pipeline.store.artifacts import Store
from pipeline.store.attempts import begin_attempt, partial_directories
from pipeline.store.lease import step_lease
from stages.errors import ArtifactError, TransientError
from stages.workers import Resources
from tests.pipeline.run.toys import FAULTS, diamond, go, text


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
        step=step,
        store=store.root,
        run_id="r",
        id="d-1",
        resources=Resources(workers=1, cpus=1),
        log=tmp_path / "log",
        checkpoint_seconds=1.0,
        num_shares=1,
        microbatch_tokens=0,
        silence_seconds=60.0,
        mirror=f"file://{tmp_path}/mirror",
        node_store="$NODE/store",
    )


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
