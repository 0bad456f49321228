"""Trials in a process of their own, so that a signal or a hang is an outcome and no end of the program."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Protocol

SECONDS, WAITING = 20, 300
"""Limits of a trial: seconds of processor time, and seconds in all on a busy machine."""
MEMORY = 3 << 30
"""Address space that a trial may add to that of its process, in bytes."""
LITTLE_MEMORY = 3 << 29
"""The same for small systems and short lines: a gibibyte, and the stacks of threads."""


class Target(Protocol):
    """Files that are mutated one at a time, and their readers."""

    refusals: tuple[type[BaseException], ...]
    """Errors by which the readers refuse a file."""

    def trial(self, seed: int) -> str:
        """Mutate a file, read it and restore it. Return what was mutated; raise what the readers raise."""


class Outcome(NamedTuple):
    """The outcome of a trial."""

    seed: int
    kind: str
    """`answered`, `refused`, `traceback`, `signal` or `hang`."""
    text: str
    """The mutation, or the error."""


def run_trials(make: Callable[[], Target], seeds: Iterable[int], memory: int = MEMORY) -> Iterator[Outcome]:
    """Yield the outcome of the trial of each seed. `make` makes the target in the process of the trials, which adds at most
    `memory` bytes."""
    context = multiprocessing.get_context("fork")
    remaining = list(reversed(list(seeds)))
    while remaining:
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(make, there, memory), daemon=True)
        process.start()
        there.close()
        with here:
            yield from _ask(here, remaining, process.pid or 0)
        process.join(1)
        if process.is_alive():
            process.kill()
            process.join()


def _ask(worker: Connection, remaining: list[int], pid: int) -> Iterator[Outcome]:
    """Yield outcomes until all trials are done or the worker is lost."""
    worker.recv()
    while remaining:
        seed = remaining.pop()
        worker.send(seed)
        if not _answers(worker, pid):
            yield Outcome(seed, "hang", f"no answer in {SECONDS} s of processor time or {WAITING} s")
            return
        try:
            yield Outcome(seed, *worker.recv())
        except EOFError:
            yield Outcome(seed, "signal", "the process was lost")
            return
    worker.send(None)


def _answers(worker: Connection, pid: int) -> bool:
    """Wait for an answer within the limits of a trial."""
    started, used = time.monotonic(), _processor_seconds(pid)
    while not worker.poll(1):
        if _processor_seconds(pid) - used > SECONDS or time.monotonic() - started > WAITING:
            return False
    return True


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(make: Callable[[], Target], parent: Connection, memory: int) -> None:
    target = make()
    faulthandler.enable()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent.send("ready")
    while (seed := parent.recv()) is not None:
        try:
            parent.send(("answered", target.trial(seed)))
        except target.refusals as error:
            parent.send(("refused", f"{type(error).__name__}: {error}"))
        except BaseException:
            parent.send(("traceback", traceback.format_exc()))
    os._exit(0)
