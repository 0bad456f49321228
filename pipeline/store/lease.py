"""Leases, by which one driver at a time owns a step. The modification time of a lease file is its holder's heartbeat."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kernels import durable
from pipeline.store.files import locked


class Lease:
    """The exclusive right to work on something, recorded in a file and renewed by its holder.

    A lease expires when it is not renewed for `seconds`, or at once when its holder was a process of this host that has ended.
    An expired lease can be acquired by another owner.
    """

    def __init__(self, path: Path, owner: str, seconds: float) -> None:
        self.path = path
        self.owner = owner
        self.seconds = seconds

    def acquire(self) -> bool:
        """Take the lease unless another owner holds it. Return whether it was taken; do not wait."""
        durable.make_directory(self.path.parent)
        with self._lock():
            holder = self.holder()
            if holder is not None and holder["owner"] != self.owner and not self._expired(holder):
                return False
            temporary = self.path.with_name(f"{self.path.name}.{self.owner}.tmp")
            temporary.write_text(json.dumps({"owner": self.owner, "host": socket.gethostname(), **_process(os.getpid())}))
            os.replace(temporary, self.path)
            return True

    def renew(self) -> bool:
        """Record a heartbeat. Return False if the lease is no longer held by this owner."""
        try:
            if self.held():
                os.utime(self.path)
                return True
        except FileNotFoundError:  # it was released meanwhile
            pass
        return False

    def release(self) -> None:
        """Release the lease if it is still held by this owner."""
        with self._lock():
            if self.held():
                self.path.unlink(missing_ok=True)

    def held(self) -> bool:
        """Return whether this owner holds the lease."""
        holder = self.holder()
        return holder is not None and holder["owner"] == self.owner

    def active(self) -> bool:
        """Return whether any owner holds the lease and it has not expired."""
        holder = self.holder()
        return holder is not None and not self._expired(holder)

    def holder(self) -> dict[str, Any] | None:
        """Return the process that holds the lease, {owner, host, pid, started}, or None."""
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def _lock(self) -> AbstractContextManager[None]:
        return locked(self.path.parent / ".leases")

    def _expired(self, holder: dict[str, Any]) -> bool:
        if holder["host"] == socket.gethostname() and _process(holder["pid"]) != {k: holder[k] for k in ("pid", "started")}:
            return True
        try:
            return time.time() - self.path.stat().st_mtime > self.seconds
        except OSError:
            return True


def step_lease(directory: Path, owner: str, seconds: float) -> Lease:
    """Return the lease on making the artifact `directory`."""
    return Lease(directory.with_name(directory.name + ".lease"), owner, seconds)


def _process(pid: int) -> dict[str, Any]:
    """Return the number and start time of a process. The start time distinguishes it from a later process with its number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return {"pid": pid, "started": None if fields[0] == "Z" else int(fields[19])}
    except OSError:
        return {"pid": pid, "started": None}
