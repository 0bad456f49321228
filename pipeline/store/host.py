"""The machine of a process as a store sees it: disk, clocks and processes. Tests replace it by a simulated one."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from durable import DISK, Disk


class Host(Protocol):
    """The machine of a process. A simulated one comes with paths of its own, on which the methods of `Path` work."""

    @property
    def disk(self) -> Disk:
        """The calls of the file system that `Path` lacks."""
        ...

    def time(self) -> float:
        """Return Unix time in seconds. Clocks of two machines are never compared."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def token(self) -> str:
        """Return 8 random hex digits, which make a name unique."""
        ...

    def process(self) -> dict[str, Any]:
        """Return the identity of this process: {host, boot, namespace, pid, started}."""
        ...

    def runs(self, process: Mapping[str, Any]) -> bool | None:
        """Return whether the process with this identity runs; None if that cannot be seen from here."""
        ...


class RealHost:
    """This machine."""

    disk: Disk = DISK

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self) -> str:
        return secrets.token_hex(4)

    def process(self) -> dict[str, Any]:
        """Two containers can share a host name and a pid, but not the boot id of a kernel and a pid namespace."""
        return {"host": socket.gethostname(), **_kernel(), "pid": os.getpid(), "started": _started(os.getpid())}

    def runs(self, process: Mapping[str, Any]) -> bool | None:
        """Processes of another kernel or pid namespace cannot be seen, and /proc may hide those of other users (hidepid)."""
        kernel = _kernel()
        pid = process.get("pid")
        began = process.get("started")
        if None in kernel.values() or any(process.get(key) != value for key, value in kernel.items()):
            return None
        if type(pid) is not int or type(began) is not int or pid <= 0:
            return None
        started = _started(pid)
        if started is None:
            return None if _exists(pid) else False
        return started == began


HOST = RealHost()
ENDED = -1
"""In place of the start time of a process that has ended and whose parent has not asked for its exit code."""


@cache
def _kernel() -> dict[str, str | None]:
    """Return the boot id of this kernel and the pid namespace of this process; None where they cannot be read."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return {"boot": boot, "namespace": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {"boot": None, "namespace": None}


def _started(pid: int) -> int | None:
    """Return the start time of a process, which distinguishes it from a later one with its number; None if it cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return ENDED if fields[0] == "Z" else int(fields[19])


def _exists(pid: int) -> bool:
    """Return whether there is a process with this number, of whichever user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True
