"""Rounds of a campaign: drivers of one store that are killed and stopped at random."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.store.artifacts import Store
from tests.end_to_end.runs import ALONE, ROOT, Watched, end
from tests.processes import SLOW_SECONDS, command_of, descendants

CLOCK = Path(__file__).with_name("clock")
NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Command that gives a driver process ids of its own, as a container does. Host names are those of the machine: all are equal."""


class Driver:
    """One command that works on a run, and is started again after it was killed."""

    def __init__(self, run: Watched, draw: random.Random, *, apart: bool) -> None:
        """`apart`: in a pid namespace of its own, if the machine allows it."""
        self.run, self._skew = run, draw.choice((0, 0, 3600, -3600, 86400))
        self._prefix = NAMESPACE if apart and has_namespaces() else ()
        self.killed = False
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(CLOCK), os.environ.get("PYTHONPATH", ""), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "FEWSTEP_CLOCK_SKEW": str(self._skew)}
        self.run.store.mkdir(parents=True, exist_ok=True)
        with self.run.output_file.open("a") as output:
            return subprocess.Popen(
                [*self._prefix, *self.run.command()], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def own(self) -> int | None:
        """Return the pid of the driver, or None if it is not there."""
        return next((pid for pid in descendants(self.process.pid) if b"-m\0pipeline\0run\0" in command_of(pid)[:200]), None)

    def workers(self) -> dict[str, list[int]]:
        """Return the pids of Ray's workers of this driver that work, by kind (`worker_kind`)."""
        found: dict[str, list[int]] = {}
        for pid in descendants(self.process.pid):
            if kind := worker_kind(command_of(pid)):
                found.setdefault(kind, []).append(pid)
        return found

    def kill(self) -> bool:
        """Kill the driver. Return whether it was there."""
        self.killed = (pid := self.own()) is not None and send(pid, signal.SIGKILL)
        return self.killed

    def done(self) -> bool:
        """Return whether the command has ended. Start a killed one again. Raises AssertionError if it failed by itself."""
        if (code := self.process.poll()) is None:
            return False
        if self.killed:
            end_session(self.process)
            self.killed, self.process = False, self._start()
            return False
        assert code == 0, f"exit code {code}\n" + self.run.output_file.read_text()[-6000:]
        return True

    def close(self) -> None:
        end(self.process)
        end_session(self.process)


def worker_kind(title: bytes) -> str | None:
    """Return the kind of a worker of Ray with this title: of a `map`, of a `training` of several, or the process of a `step`.

    None for another process, an agent or a worker without work.
    """
    if not title.startswith(b"ray::") or b"Agent" in title or b"IDLE" in title:
        return None
    if b"_Mapper" in title:
        return "map"
    return "training" if b"TrainWorker" in title else "step"


def send(pid: int, number: int) -> bool:
    """Send a signal. Return whether there was a process to receive it."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of a session whose first process has ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def has_namespaces() -> bool:
    """Return whether this user may create pid namespaces."""
    return bool(shutil.which("unshare")) and subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


WORKER_SHARE = 0.5
"""Share of the kills, and of the stops, that hit workers on Ray."""
MAX_MAP_KILLS = 2
"""The third worker of a map that dies on one shard fails the step, by design."""
OPTIONS = tuple(
    part
    for value in (
        "defaults.training.updates=150", "cluster.retries=1000", "cluster.silence_seconds=60", "store.lease_seconds=2",
        "cluster.resources.train={workers: 2, cpus: 0.5}",
    )
    for part in ("--set", value)
)  # fmt: skip
"""Batches have two shares, which one process computes, or two training workers on Ray: to the same bits."""
ON_RAY = ("--set", "cluster.cpus=2")


def options(on_ray: bool) -> tuple[str, ...]:
    """Return the options of all commands of a round."""
    return (*OPTIONS, *(ON_RAY if on_ray else ALONE))


@dataclass
class Faults:
    """The faults that remain to be injected in a round, and those that were."""

    kills: int
    stops: int
    draw: random.Random
    on_ray: bool = False
    """Whether drivers have workers, after a while. The kills of workers wait for them."""
    counts: Counter[str] = field(default_factory=Counter)
    stopped: dict[int, float] = field(default_factory=dict)
    """Moments at which stopped processes go on, by pid."""

    def inject(self, drivers: list[Driver]) -> None:
        """Stop or kill a random process, and let those go on whose time has come."""
        self.resume(time.monotonic())
        driver = self.draw.choice(drivers)
        if driver.process.poll() is not None or not self.kills + self.stops:
            return
        if self.draw.random() >= self.kills / (self.kills + self.stops):
            self._stop(driver)
        elif self.on_ray and self._worker_is_due():
            self._kill_worker(drivers)
        else:
            self._kill(driver)

    def resume(self, now: float) -> None:
        """Let stopped processes go on, by the monotonic time `now`."""
        for pid in [pid for pid, until in self.stopped.items() if until <= now]:
            send(pid, signal.SIGCONT)
            del self.stopped[pid]

    def _worker_is_due(self) -> bool:
        workers, drivers = self.counts["workers killed"], self.counts["drivers killed"]
        return workers < WORKER_SHARE * (workers + drivers + 1)

    def _kill(self, driver: Driver) -> None:
        if driver.kill():
            self.kills -= 1
            self.counts["drivers killed"] += 1

    def _kill_worker(self, drivers: list[Driver]) -> None:
        """Kill a worker of the kind whose turn it is, if there is one. Every second is a training's: they are late and short."""
        workers = self._workers(drivers)
        if 2 * self.counts["training workers killed"] < self.counts["workers killed"]:
            workers = {kind: pids for kind, pids in workers.items() if kind == "training"}
        if not workers:
            return
        kind = min(sorted(workers), key=lambda kind: self.counts[f"{kind} workers killed"])
        if send(self.draw.choice(workers[kind]), signal.SIGKILL):
            self.kills -= 1
            self.counts += Counter({"workers killed": 1, f"{kind} workers killed": 1})

    def _workers(self, drivers: list[Driver]) -> dict[str, list[int]]:
        """Return the pids of all workers that may be killed, by kind."""
        found: dict[str, list[int]] = {}
        for kind, pids in (entry for driver in drivers for entry in driver.workers().items()):
            if kind != "map" or self.counts["map workers killed"] < MAX_MAP_KILLS:
                found.setdefault(kind, []).extend(pids)
        return found

    def _stop(self, driver: Driver) -> None:
        own, workers = driver.own(), [pid for pids in driver.workers().values() for pid in pids]
        chosen = workers if workers and self.draw.random() < WORKER_SHARE else [own]
        pids = [pid for pid in chosen if pid is not None and pid not in self.stopped]
        if not pids:
            return
        pid = self.draw.choice(pids)
        seconds = self.draw.uniform(2.5, 4.0) if self.draw.random() < 0.05 else self.draw.uniform(0.01, 0.5)
        if send(pid, signal.SIGSTOP):
            self.stopped[pid] = time.monotonic() + seconds
            self.stops -= 1
            self.counts["drivers stopped" if pid == own else "workers stopped"] += 1
            self.counts["stops past a lease"] += seconds > 2.5


def play(seed: int, store: Path, undisturbed: Watched, *, on_ray: bool, kills: int, stops: int, seconds: float) -> Counter[str]:
    """Play a round and return the counts of its faults. Faults come within about `seconds`.

    Raises AssertionError if a command fails by itself, or the artifacts differ from those of the undisturbed run.
    """
    draw = random.Random(seed)
    run, faults = Watched(store, *options(on_ray)), Faults(kills, stops, draw, on_ray)
    drivers = [Driver(run, draw, apart=not on_ray and draw.random() < 0.5) for _ in range(2)]
    deadline, pause = time.monotonic() + SLOW_SECONDS, seconds / max(1, kills + stops)
    try:
        while not all(list(map(Driver.done, drivers))):  # each is asked, so that each killed one is started again
            faults.inject(drivers)
            time.sleep(draw.uniform(0.5, 1.5) * pause)
            assert time.monotonic() < deadline, run.output_file.read_text()[-6000:]
    finally:
        faults.resume(float("inf"))
        for driver in drivers:
            driver.close()
    check(run, undisturbed)
    return faults.counts


def check(run: Watched, undisturbed: Watched) -> None:
    """Raise AssertionError if an artifact is missing, damaged or differs, or a command has shown a traceback."""
    assert run.files() == undisturbed.files()
    assert [problem for _, problem in Store(run.store).verify_all() if problem] == []
    assert run.events("step_failed") == []
    assert "Traceback" not in run.output_file.read_text()
