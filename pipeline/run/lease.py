"""One driver works on a step at a time: a lease file with a heartbeat."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernels import durable


class Lease:
    """The right to work on what `path` names. Whoever holds it renews it; one that is not renewed for `seconds` is taken over,
    at once if its holder was a process of this host that is gone."""

    def __init__(self, path: Path, owner: str, seconds: float) -> None:
        self.path = path
        self.owner = owner
        self.seconds = seconds

    def acquire(self) -> bool:
        """Take the lease if nobody holds it. Does not wait."""
        durable.make_directory(self.path.parent)
        with _exclusive(self.path.parent / ".leases"):
            holder = self.holder()
            if holder is not None and holder["owner"] != self.owner and not self._abandoned(holder):
                return False
            temporary = self.path.with_name(f"{self.path.name}.{self.owner}.tmp")
            temporary.write_text(json.dumps({"owner": self.owner, "host": socket.gethostname(), **_process(os.getpid())}))
            os.replace(temporary, self.path)
            return True

    def renew(self) -> bool:
        """Say that the holder is alive. False when it is ours no more."""
        try:
            if self.held():
                os.utime(self.path)
                return True
        except FileNotFoundError:  # released meanwhile
            pass
        return False

    def release(self) -> None:
        """Give the lease back if it is still ours."""
        with _exclusive(self.path.parent / ".leases"):
            if self.held():
                self.path.unlink(missing_ok=True)

    def held(self) -> bool:
        """Is it ours still?"""
        holder = self.holder()
        return holder is not None and holder["owner"] == self.owner

    def living(self) -> bool:
        """Does anybody hold it, and is not gone?"""
        holder = self.holder()
        return holder is not None and not self._abandoned(holder)

    def holder(self) -> dict[str, Any] | None:
        """Who holds it: {owner, host, pid, started}, or None."""
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def _abandoned(self, holder: dict[str, Any]) -> bool:
        if holder["host"] == socket.gethostname() and _process(holder["pid"]) != {k: holder[k] for k in ("pid", "started")}:
            return True
        try:
            return time.time() - self.path.stat().st_mtime > self.seconds
        except OSError:
            return True


def step_lease(directory: Path, owner: str, seconds: float) -> Lease:
    """The right to make the artifact `directory`."""
    return Lease(directory.with_name(directory.name + ".lease"), owner, seconds)


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _process(pid: int) -> dict[str, Any]:
    """A process by number and start time, so that a number given to a new process is not taken for the old one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return {"pid": pid, "started": None if fields[0] == "Z" else int(fields[19])}
    except OSError:
        return {"pid": pid, "started": None}
