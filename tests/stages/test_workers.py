"""Workers of a step: failed starts, interrupts, lost connections and signs of life."""

import logging
import os
import signal
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError

from stages.errors import StageError, TransientError
from stages.workers import Resources, ray_workers
from stages.workers import pulse as pulses
from stages.workers.interrupts import delayed_signals
from stages.workers.logs import logged
from stages.workers.pulse import Watch, pulse
from stages.workers.ray_errors import explained, reason_of_death
from stages.workers.ray_workers import RayWorkers

# ---- starts


DEATH = """The actor died unexpectedly before finishing this task.
	class_name: _Mapper
	actor_id: 35233dfd22fd814ac976d2f501000000
	namespace: 9b1a8d04-39e9-4bbc-b974-202e670d4ab3
	ip: 192.0.2.2
The actor died because its node has died. Node Id: 26fbed54a01ba6dc5c86ad5d81d1c5a98e7c2c7df8cbb2fbdfa20d04
	the actor's node was terminated unexpectedly: health check failed due to missing too many heartbeats
The actor never ran - it was cancelled before it started running.
"""
OUT_OF_MEMORY = "Task was killed due to the node running low on memory."
WITHOUT_ADDRESS = "\n".join(line for line in DEATH.splitlines() if "ip:" not in line)


def died() -> ActorDiedError:
    reason = "The actor died because its node has died. Node Id: 26fb"
    return ActorDiedError(ActorDiedErrorContext(node_ip_address="192.0.2.2", actor_id=bytes(16), error_message=reason))


class Cluster:
    """A cluster on which a worker dies at its start if `dies` says so of its number. Calls end at once."""

    def __init__(self, dies: Any) -> None:
        self.dies, self.starts = dies, 0

    def start(self, *_: Any) -> Any:
        self.starts += 1
        number = self.starts

        def ready() -> None:
            if self.dies(number):
                raise died()

        done: list[int] = []

        def apply(shard: int) -> int:
            """Return the result of a shard. Every worker dies on its second one."""
            done.append(shard)
            if len(done) == 2:
                raise died()
            return shard * 10

        call = SimpleNamespace(remote=lambda: Call(ready))
        return Actor(ready=call, apply=SimpleNamespace(remote=lambda shard: Call(lambda: apply(shard))))


class Call:
    """The reference of a call that has ended."""

    def __init__(self, result: Any) -> None:
        self.result = result


class Actor:
    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)


def results(cluster: Cluster, shards: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the results of a map of two workers over a cluster."""
    calls = SimpleNamespace(wait=lambda calls, **_: (calls[:1], calls[1:]), get=lambda call: call.result(), kill=lambda actor: None)
    monkeypatch.setattr(ray_workers, "ray", calls)
    monkeypatch.setattr(ray_workers, "_Mapper", SimpleNamespace(options=lambda **_: SimpleNamespace(remote=cluster.start)))
    parts = [folder / name for name in ("scratch", "log", "deaths", "isa")]
    workers = RayWorkers(Resources(workers=2, cpus=1), "align:raw", *parts)
    return dict(workers.map(lambda _: lambda _: None, 0, list(range(shards))))


def test_only_deaths_in_a_row_end_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of every eight workers die at their start: far more in a long step than the six deaths in a row that would end it."""
    cluster = Cluster(dies=lambda number: number % 8 in (1, 2))
    assert results(cluster, 40, tmp_path, monkeypatch) == {shard: shard * 10 for shard in range(40)}


def test_nodes_on_which_no_worker_starts_end_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(dies=lambda number: True)
    cause = r"the last with: The actor died because its node has died \(ip: 192\.0\.2\.2\); check the nodes of the cluster"
    with pytest.raises(StageError, match=rf"7 workers died before they had started, {cause}"):
        results(cluster, 3, tmp_path, monkeypatch)
    assert cluster.starts == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEATH, "The actor died because its node has died (ip: 192.0.2.2)"),
        (WITHOUT_ADDRESS, "The actor died because its node has died"),
        ("The actor died unexpectedly before finishing this task.", "The actor died unexpectedly before finishing this task."),
        (f"{OUT_OF_MEMORY}\nMemory: 1 GB", OUT_OF_MEMORY),
    ],
)
def test_the_reason_of_a_death_is_below_its_properties(text: str, expected: str) -> None:
    assert reason_of_death(RuntimeError(text)) == expected


# ---- interrupts


@pytest.fixture
def noted():
    """Signals that reached the original handler."""
    came = []
    previous = {number: signal.signal(number, lambda n, frame: came.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    yield came
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_acts_when_the_block_ends(noted, number):
    with delayed_signals() as came:
        assert not came()
        os.kill(os.getpid(), number)
        assert came()
        assert noted == []
    assert noted == [number]


def test_a_second_signal_acts_at_once(noted):
    with delayed_signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert noted == [signal.SIGINT]
    assert noted == [signal.SIGINT, signal.SIGINT]


def test_handlers_are_restored(noted):
    before = signal.getsignal(signal.SIGTERM)
    with delayed_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_delay_no_signal(noted):
    seen = []

    def inside():
        with delayed_signals() as came:
            seen.append((came(), signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


# ---- connections


LOST = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:3726: Connection reset by peer"


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError(LOST), TransientError), (RuntimeError("a bug"), StageError), (ValueError(LOST), StageError)]
)
def test_a_lost_connection_between_workers_is_repeated(error: Exception, kind: type[StageError]) -> None:
    assert type(explained(error)) is kind


def test_the_reason_is_below_the_traceback_of_another_process() -> None:
    error = RuntimeError(f"ray::train() (pid=1, ip=10.99.0.3)\n  File ...\nRuntimeError: {LOST}")
    assert str(explained(error)) == f"a training worker lost the connection to another one: RuntimeError: {LOST}"


def test_errors_of_the_process_group_are_repeated() -> None:
    error = torch.distributed.DistNetworkError("The client socket has timed out after 60000ms")
    assert type(explained(error)) is TransientError


def test_the_machine_of_a_dead_worker_is_named() -> None:
    context = ActorDiedErrorContext(
        node_ip_address="10.99.0.2",
        pid=14023,
        actor_id=bytes(16),
        error_message="The actor died because its node has died. Node Id: 9e81\n\thealth check failed",
    )
    expected = "a worker or its node was lost: The actor died because its node has died (ip: 10.99.0.2)"
    assert str(explained(ActorDiedError(context))) == expected


@pytest.mark.ray
def test_workers_that_do_not_start_are_repeated() -> None:
    """A node that is lost before Ray notices it still counts when the next attempt asks for its workers."""
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
    from ray.train.v2.api.exceptions import ControllerError

    error = ControllerError(WorkerGroupStartupTimeoutError(2))
    assert type(explained(error, (ControllerError,))) is TransientError


WORKER_ERROR = "One of the worker actors failed to initialize due to error:\nTraceback (most recent call last):\n  ...\n"


@pytest.mark.ray
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            WORKER_ERROR
            + "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tip: 10.0.0.7\n"
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n",
            TransientError,
            "a worker or its node was lost: The actor is dead because its worker process has died (ip: 10.0.0.7)",
        ),
        (
            "At least one of the worker actors failed to initialize.",
            TransientError,
            "a worker or its node was lost: At least one of the worker actors failed to initialize.",
        ),
        (
            WORKER_ERROR + "ImportError: no module named 'torch'\n",
            StageError,
            "WorkerGroupStartupFailedError: ImportError: no module named 'torch'",
        ),
    ],
)
def test_workers_that_die_while_they_start_are_repeated(text: str, kind: type[Exception], message: str) -> None:
    from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError
    from ray.train.v2.api.exceptions import ControllerError

    found = explained(ControllerError(WorkerGroupStartupFailedError(text)), (ControllerError,))
    assert (type(found), str(found)) == (kind, message)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pulses, "time", clock)
    return clock


def looks(watch: Watch, path: Path, clock: Clock, seconds: float, every: float = 1.0) -> list[bool]:
    found = []
    for _ in range(int(seconds / every)):
        clock.now += every
        found.append(watch.silent(path))
    return found


def test_a_file_that_is_not_touched_is_silent_after_the_given_time(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    assert not any(looks(watch, path, clock, 60))  # the process has not begun
    path.touch()
    watch.silent(path)
    assert looks(watch, path, clock, 11) == [False] * 9 + [True] * 2
    path.touch()
    assert looks(watch, path, clock, 11) == [False] * 10 + [True]
    path.unlink()
    assert not any(looks(watch, path, clock, 60))


def test_the_time_in_which_the_watching_process_was_stopped_is_no_silence(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    path.touch()
    watch.silent(path)
    clock.now += 3600
    assert not watch.silent(path)
    assert looks(watch, path, clock, 5)[-1]


def test_a_clock_of_the_file_system_that_is_wrong_does_not_matter(tmp_path: Path, clock: Clock) -> None:
    path, watch = tmp_path / "p", Watch(10.0)
    path.touch()
    for moment in (5e8, 4e9, 1e9, 3e9):
        os.utime(path, (moment, moment))
        assert not any(looks(watch, path, clock, 8))


def test_a_process_touches_its_file_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "p"
    with pulse(path, 0.08):
        seen: set[int] = set()
        while len(seen) < 3:
            if path.exists():
                seen.add(path.stat().st_mtime_ns)
            time.sleep(0.005)
    assert not path.exists()


def test_a_file_that_cannot_be_created_disturbs_nothing(tmp_path: Path) -> None:
    with pulse(tmp_path / "missing" / "p", 0.08):
        time.sleep(0.03)


def test_a_log_is_for_its_user_alone(tmp_path: Path) -> None:
    """Messages of other programs may hold credentials of the environment."""
    for _ in range(2):
        with logged(tmp_path / "logs" / "a.log") as log:
            log.info("started")
    assert stat.S_IMODE((tmp_path / "logs" / "a.log").stat().st_mode) == 0o600
    assert (tmp_path / "logs" / "a.log").read_text().count("started") == 2


def test_a_log_on_a_disk_that_fails_loses_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def emit(handler: logging.FileHandler, record: logging.LogRecord) -> None:
        try:
            raise OSError(5, "Input/output error")
        except OSError:
            handler.handleError(record)

    with logged(tmp_path / "a.log") as log:
        monkeypatch.setattr(logging.FileHandler, "emit", emit)
        log.info("lost")
    assert capsys.readouterr().err == ""
