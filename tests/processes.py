"""Processes of this machine, any of which may end while they are listed, and waiting for events: a deadline is no measure of a
program's speed, and only ends a test whose event never comes."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

FAST_SECONDS = 200.0
"""Deadline in fast tests, which pytest itself ends after 300 s."""
SLOW_SECONDS = 1200.0
"""Deadline in slow tests, which pytest itself ends after 1500 s (`make test-slow`)."""


def until(ready: Callable[[], bool], seconds: float = FAST_SECONDS) -> None:
    """Wait until `ready` returns True. Raises AssertionError if it never does."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"the event has not come in {seconds:g} s"
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Return a process and all processes that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def command_of(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def running(pid: int) -> bool:
    """Return whether a process is there and has a thread that is not a zombie. A killed process may still finish a call."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has just ended
            states.append(path.read_text().rsplit(")", 1)[1].split()[0])
    return any(state not in "ZX" for state in states)


def wait_for_end(pids: Iterable[int]) -> None:
    """Wait until none of these processes is running."""
    pids = list(pids)
    until(lambda: not any(map(running, pids)), SLOW_SECONDS)
