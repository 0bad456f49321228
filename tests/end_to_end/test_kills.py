"""Processes killed at any moment: the repeated command writes the artifacts of an undisturbed run, bit for bit."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.end_to_end.runs import ALONE, SLOWLY, Watched, end

pytestmark = [pytest.mark.slow, pytest.mark.ray]

TRAINED, DISTILLED = ("--until", "train:teacher"), (*SLOWLY, "--until", "encode:distilled")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("undisturbed") / "store", *ALONE, *SLOWLY)
    run.finish()
    return run


def survived(run: Watched, undisturbed: Watched, killed: str) -> None:
    """Repeat the command; finished steps do not run again, and every result equals that of the undisturbed run."""
    finished = {e["step"] for e in run.events("step_done")}
    assert killed not in finished
    run.finish()
    assert run.agrees_with(undisturbed)
    assert {step: run.started(step) for step in finished} == dict.fromkeys(finished, 1)


def test_driver_killed_in_training(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED)
    run.kill_when(lambda: run.progress("train:teacher") >= 60)
    survived(run, undisturbed, "train:teacher")
    assert run.started("train:teacher") == 2
    continued = re.search(r"training from update (\d+) of 200", run.log("train:teacher"))
    assert continued is not None
    assert int(continued[1]) > 0


@pytest.mark.exhaustive
def test_driver_killed_in_decoding(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    run.kill_when(lambda: len(list((run.store / "shards").glob("*.arrow"))) > 0)
    decoded = {path: path.stat().st_mtime_ns for path in (run.store / "shards").rglob("*.arrow")}
    survived(run, undisturbed, "distill:train")
    assert decoded
    assert {path: path.stat().st_mtime_ns for path in decoded} == decoded


@pytest.mark.exhaustive
def test_driver_killed_between_steps(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE, *DISTILLED)
    run.kill_when(lambda: any(e["step"].startswith("vocabulary") for e in run.events("step_done")))
    survived(run, undisturbed, "train:teacher")


def kill_workers(run: Watched, step: str, ready: int, *, alone: bool = False) -> None:
    """Kill all workers of a step, or the step's own process if it works `alone`, once `ready` of its work is done. The
    run then ends by itself."""
    process = run.start()
    try:
        run.wait(lambda: run.progress(step) >= ready, process)
        own, *workers = dict.fromkeys(int(pid) for pid in re.findall(r" \[(\d+)\] ", run.log(step)))
        assert bool(workers) != alone
        for worker in workers or [own]:
            os.kill(worker, signal.SIGKILL)
        run.ends(process)
    finally:
        end(process)


def test_training_worker_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED)
    kill_workers(run, "train:teacher", 60, alone=True)
    assert [e["step"] for e in run.events("step_retried")] == ["train:teacher"]
    assert run.agrees_with(undisturbed)


def test_decoding_workers_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    kill_workers(run, "distill:train", 512)
    assert "which is given to another worker" in run.log("distill:train")
    assert run.started("distill:train") == 1
    assert run.agrees_with(undisturbed)


@pytest.mark.exhaustive
def test_decoding_alone_killed(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED, "--set", "cluster.resources.distill.workers=1")
    run.begin_with(undisturbed, before="distill:train")
    kill_workers(run, "distill:train", 512, alone=True)
    assert [e["step"] for e in run.events("step_retried")] == ["distill:train"]
    assert run.agrees_with(undisturbed)


@pytest.mark.exhaustive
def test_two_drivers_share_the_work(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *ALONE, *SLOWLY)
    first = run.start()
    try:
        run.wait(lambda: run.running("train:teacher") is not None, first)
        second = run.start()
        run.ends(first)
        run.ends(second)
    finally:
        end(first)
        end(second)
    assert {step: run.started(step) for step in run.files()} == dict.fromkeys(run.files(), 1)
    assert run.agrees_with(undisturbed)


@pytest.mark.exhaustive
def test_interrupted_run_saves_its_state(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", "--set", "cluster.checkpoint_seconds=3600", *TRAINED)
    process = run.start()
    try:
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        process.send_signal(signal.SIGTERM)
        run.ends(process, 130)
    finally:
        end(process)
    directory = run.running("train:teacher")
    assert directory is not None
    assert [p for p in (directory / "checkpoints").iterdir() if p.name.isdigit()]
    survived(run, undisturbed, "train:teacher")
