"""A cluster whose head is there and does not answer, as one that is stopped, hangs or lies behind a broken network."""

import os
import queue
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fewstep import local_ray
from pipeline.run.ray_cluster import head as ray_head
from stages.errors import StageError
from tests.end_to_end.nodes import cluster
from tests.end_to_end.runs import Watched, end
from tests.waiting import FAST_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.ray]


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
        process = run.start()
        try:
            run.wait(lambda: bool(run.events("step_started")), process)
            with stopped(nodes.head_process()):
                run.ends(process, 1)
        finally:
            end(process)
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
