"""Drivers of one run that are stopped and killed at random moments, and their processes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.end_to_end.runs import ROOT, Watched, end
from tests.processes import command_of, descendants

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
                [*self._prefix, *self.run.command()],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

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
