"""Processes, workers and heads that are stopped, hang or are silent."""

import os
import queue
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fewstep import local_ray
from pipeline.run.ray_cluster import head as ray_head
from stages.errors import StageError
from tests.end_to_end.nodes import cluster
from tests.end_to_end.runs import ALONE, SLOWLY, Watched
from tests.processes import FAST_SECONDS, command_of, descendants, wait_for_end

pytestmark = [pytest.mark.slow, pytest.mark.ray]


TRAINED = ("--until", "train:teacher", "--set", "cluster.silence_seconds=30")
UNTIL = (*SLOWLY, "--until", "distill:train")
DISTILLED = (*UNTIL, "--set", "cluster.silence_seconds=30", "--set", "cluster.resources.distill.workers=2")

TWO = ("--until", "train:teacher", "--set", "cluster.resources.train.workers=2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    run = Watched(tmp_path_factory.mktemp("undisturbed") / "store", *ALONE, *UNTIL)
    run.finish()
    return run


def finish(run: Watched, process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a run and return the reasons for which the training was repeated."""
    run.ends(process)
    return [e["error"] for e in run.events("step_retried")]


def model(run: Watched) -> bytes:
    return next((run.store / "train").glob("*/model.safetensors")).read_bytes()


def test_a_step_whose_process_is_stopped_is_repeated_from_its_checkpoint(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED)
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        (worker,) = run.processes("train:teacher")
        os.kill(worker, signal.SIGSTOP)
        (reason,) = finish(run, process)
        assert reason == "no sign of life for 30 s; the process was killed"
        wait_for_end([worker])
    assert model(run) == model(undisturbed)


def test_a_training_worker_that_is_stopped_ends_the_attempt(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TWO, "--set", "cluster.silence_seconds=30")
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        _, *workers = run.processes("train:teacher")
        os.kill(workers[1], signal.SIGSTOP)
        assert any("health check" in reason for reason in finish(run, process))
        wait_for_end([workers[1]])
    assert re.search(r"training from update ([1-9]\d*) of 200", run.log("train:teacher"))


def test_a_worker_of_a_map_that_is_stopped_is_replaced(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *DISTILLED)
    run.begin_with(undisturbed, before="distill:train")
    with run.background() as process:
        run.wait(lambda: len(run.processes("distill:train")) >= 2, process)
        _, worker, *_ = run.processes("distill:train")
        os.kill(worker, signal.SIGSTOP)
        assert finish(run, process) == []
        wait_for_end([worker])
    (done,) = run.events("step_done")
    assert done["deaths"] == 1
    assert run.agrees_with(undisturbed)


def test_a_local_cluster_that_is_lost_is_started_again(undisturbed: Watched, tmp_path: Path) -> None:
    """The process of the training may end its work without its node; the next step needs another node in any case."""
    run = Watched(tmp_path / "store", *UNTIL)
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 20, process)
        os.kill(program(process.pid, b"/raylet/raylet"), signal.SIGKILL)
        assert len(finish(run, process)) <= 1
    assert "the local Ray cluster is lost, and is started again" in run.output_file.read_text()
    assert run.agrees_with(undisturbed)


def test_a_local_cluster_whose_head_is_lost_is_started_again(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *UNTIL)
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 20, process)
        os.kill(program(process.pid, b"/gcs/gcs_server"), signal.SIGKILL)
        finish(run, process)
    assert "the local Ray cluster is lost, and is started again" in run.output_file.read_text()
    assert run.agrees_with(undisturbed)


def program(driver: int, path: bytes) -> int:
    """Return the process of one of Ray's programs that a driver has started, by the end of the program's path.

    It comes before its own children, which are copies of it until they run their programs.
    """
    return next(pid for pid in descendants(driver) if command_of(pid).partition(b"\0")[0].endswith(path))


def test_a_training_that_is_asked_to_end_loses_no_update(undisturbed: Watched, tmp_path: Path) -> None:
    run = Watched(tmp_path / "store", *TRAINED, "--set", "cluster.checkpoint_seconds=10000")
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 60, process)
        os.kill(run.processes("train:teacher")[0], signal.SIGTERM)
        assert len(finish(run, process)) == 1
    (continued,) = re.findall(r"training from update (\d+) of 200", run.log("train:teacher"))  # in the log of the last attempt
    assert int(continued) >= 60
    assert model(run) == model(undisturbed)


def test_a_worker_of_several_that_is_asked_to_end_loses_no_update(undisturbed: Watched, tmp_path: Path) -> None:
    """Two workers on Ray, of which the second is asked to end, compute the bits of one process with the shares of two."""
    alone = Watched(tmp_path / "alone", "--in-process", "--set", "cluster.cpus=2", *TWO)
    alone.begin_with(undisturbed, before="train:teacher")
    alone.finish()
    assert model(alone) != model(undisturbed)
    run = Watched(tmp_path / "store", *TWO, "--set", "cluster.checkpoint_seconds=10000")
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as process:
        run.wait(lambda: run.progress("train:teacher") >= 40, process)
        os.kill(second_worker(run), signal.SIGTERM)
        (reason,) = finish(run, process)
    assert re.fullmatch(r"asked to stop: the state of the training after update (\d+) is saved; a rerun continues there", reason)
    (continued,) = re.findall(r"training from update (\d+) of 200", run.log("train:teacher"))[:1]
    assert int(continued) >= 40
    assert model(run) == model(alone)


def second_worker(run: Watched) -> int:
    return int(re.findall(r"\[(\d+)\] training worker 2 of 2 ", run.log("train:teacher"))[-1])


def test_another_driver_goes_on_after_one_that_is_asked_to_end(undisturbed: Watched, tmp_path: Path) -> None:
    """The lease is yielded: the other driver does not wait until it expires. The first one is stopped until the other waits."""
    run = Watched(tmp_path / "store", *ALONE, "--until", "train:teacher", "--set", "store.lease_seconds=3600")
    run.begin_with(undisturbed, before="train:teacher")
    with run.background() as first:
        run.wait(lambda: run.progress("train:teacher") >= 20, first)
        first.send_signal(signal.SIGSTOP)
        with run.background() as second:
            run.wait(lambda: any("another driver works on it" in e.get("error", "") for e in run.events("step_waiting")), second)
            first.send_signal(signal.SIGTERM)
            first.send_signal(signal.SIGCONT)
            run.ends(first, 130)
            run.ends(second)
    assert int(re.findall(r"training from update (\d+) of 200", run.log("train:teacher"))[-1]) >= 20
    assert run.agrees_with(undisturbed)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_driver_whose_head_stops_answering_ends_with_words(tmp_path: Path) -> None:
    """Ray ends it too, some minutes later and without these words."""
    with cluster() as nodes:
        nodes.add(1)
        address = nodes.address
        run = Watched(tmp_path / "store", "--set", f"cluster.address={address}", "--until", "train:teacher")
        with run.background() as process:
            run.wait(lambda: bool(run.events("step_started")), process)
            with stopped(nodes.head_process()):
                run.ends(process, 1)
    output = " ".join(run.output_file.read_text().split())
    assert f"the Ray cluster at {address}: expected an answer" in output, output[-4000:]
    assert "start the cluster again and repeat the command" in output
    assert "Traceback" not in output


def test_a_port_that_accepts_and_does_not_answer_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts connections for a process that does not. A driver that is stuck in a call of Ray is ended."""
    monkeypatch.setattr(local_ray, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(ray_head, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(ray_head, "STUCK_SECONDS", 1.0)
    ended: queue.Queue[int] = queue.Queue()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(TimeoutError):
            local_ray.check_answers(address)
        head = ray_head.Head(address, address, end=ended.put)
        try:
            assert ended.get(timeout=FAST_SECONDS) == 1
            assert head.is_lost()
            with pytest.raises(StageError, match=f"expected an answer from {address}"):
                head.check()
        finally:
            head.close()
