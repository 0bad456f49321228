"""Leases, by which one attempt at a time owns a step.

A lease `x.lease` is a sequence of files `x.lease-1`, `x.lease-2`, ...: the holder of the highest number owns it. A file is created
exclusively and only its creator writes to it, so no lock is needed and a process that slept cannot damage the lease of another.
The holder renews its lease by counting up in its file. Whoever waits watches on its own clock whether the count changes; the
clocks of two machines are never compared (Gray and Cheriton 1989, "Leases", SOSP, assume bounded drift instead).

A lease keeps honest drivers apart, but a holder may be paused at any moment and wake up without it. Therefore each attempt works
in a directory of its own, which its successor renames (`Store.begin`): a rename of the paused attempt then finds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import durable
from fewstep.bounded_files import read_bounded
from pipeline.store.host import HOST, Host
from stages.errors import LeaseLostError, TransientError, unwritable

POLL_SECONDS = 0.5
MAX_BYTES = 1 << 16
"""Bytes of the file of a lease."""
READ_TRIES = 4
"""Attempts to read a lease before it counts as unreadable."""

T = TypeVar("T")
_NUMBER = re.compile("[0-9]{1,18}")


class Lease:
    """The exclusive right to work on something, renewed by its holder.

    A lease expires when nobody has renewed it for the seconds that it names, or at once when its holder is a process that is seen
    to have ended. An expired or released lease can be acquired by another owner.
    """

    def __init__(self, path: Path, owner: str, seconds: float, host: Host = HOST) -> None:
        """`owner` is unique: the id of a driver or of an attempt. `seconds`: the longest time between two renewals."""
        self.path = path
        self.owner = owner
        self.seconds = seconds
        self._host = host
        self._watched: tuple[bytes, float] | None = None
        """The last content of another's lease, and the moment since which it has not changed."""
        self._renewed = False
        """Whether the holder has renewed its lease since this owner began to watch."""

    def acquire(self) -> bool:
        """Take the lease unless another owner holds it. Return whether it was taken; do not wait.

        Raises TransientError if the lease cannot be read, StageError if it cannot be written.
        """
        try:
            durable.make_directory(self.path.parent, self._host.disk)
            earlier = self._files()
            if earlier and not self._is_free(content := self._read(earlier[-1])):
                return bool(_holder(content).get("owner") == self.owner)
            return self._create(_number(earlier[-1]) + 1 if earlier else 1, earlier)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def acquire_or_meet(self) -> bool:
        """Take the lease, and wait until it is taken or its holder is seen to live. Return whether it was taken."""
        while not self.acquire():
            if self._renewed or self._host.runs(self.holder() or {}):
                return False
            self._host.sleep(min(POLL_SECONDS, self.seconds / 10))
        return True

    def renew(self) -> bool:
        """Count up. Return False if the lease is no longer held by this owner."""
        return self._rewrite(released=False)

    def release(self) -> None:
        """Release the lease if it is still held by this owner. If its file cannot be changed, the lease expires."""
        with suppress(OSError, TransientError):
            files = self._files()
            if self._rewrite(released=True):
                files[-1].unlink(missing_ok=True)

    def held(self) -> bool:
        """Return whether this owner holds the lease."""
        return bool((self.holder() or {}).get("owner") == self.owner)

    def taken(self) -> bool:
        """Return whether another owner holds the lease."""
        return bool((self.holder() or {}).get("owner", self.owner) != self.owner)

    def check(self) -> None:
        """Raise LeaseLostError unless this owner holds the lease."""
        holder = self.holder() or {}
        if holder.get("owner") != self.owner:
            found = f"{holder['owner']} holds it" if "owner" in holder else "nobody holds it"
            raise LeaseLostError(
                f"{self.path}: expected the lease of {self.owner}, but {found}: the driver's lease expired and another driver "
                "owns this step; nothing was written to the store"
            )

    def holder(self) -> dict[str, Any] | None:
        """Return the holder {owner, seconds, host, boot, namespace, pid, started}, or None. It is {} if it cannot be read."""
        files = self._files()
        found = _holder(self._read(files[-1])) if files else None
        return None if found is None or found.get("released") else found

    def watch(self) -> bool | None:
        """Return whether a holder lives; None while that is unknown, because it was not watched for long enough."""
        files = self._files()
        if not files or self._is_free(self._read(files[-1])):
            return False
        return True if self._renewed or self._host.runs(self.holder() or {}) else None

    def seconds_to_watch(self) -> float:
        """Return the longest time after which a holder that is watched from now on is known to live or not."""
        return float((self.holder() or {}).get("seconds", self.seconds))

    def _is_free(self, content: bytes) -> bool:
        """Return whether a lease with this content is released or expired. A holder is watched from the first call on."""
        holder = _holder(content)
        now = self._host.monotonic()
        if holder.get("released"):
            return True
        if holder.get("owner") == self.owner:
            return False
        if holder and self._host.runs(holder) is False:
            return True
        if self._watched is None or self._watched[0] != content:
            self._renewed = self._watched is not None
            self._watched = (content, now)
        return now - self._watched[1] > float(holder.get("seconds", self.seconds))

    def _create(self, number: int, earlier: Iterable[Path]) -> bool:
        path = self.path.with_name(f"{self.path.name}-{number}")
        try:
            with path.open("xb") as file:
                file.write(self._content(0, released=False))
        except FileExistsError:
            return False
        except OSError:
            path.unlink(missing_ok=True)
            raise
        if self._files()[-1:] != [path]:  # this process slept, and others took the number and higher ones meanwhile
            path.unlink(missing_ok=True)
            return False
        # Only after the new file is there: some file of the lease exists at any time, so that numbers never start again.
        for old in earlier:
            old.unlink(missing_ok=True)
        return True

    def _rewrite(self, *, released: bool) -> bool:
        """Overwrite the file of this owner in place, so that the file of another owner, which may replace it meanwhile, is not
        touched."""
        files = self._files()
        try:
            with files[-1].open("r+b") as file:
                holder = _holder(file.read())
                if holder.get("owner") != self.owner or holder.get("released"):
                    return False
                file.seek(0)
                file.write(self._content(int(holder["renewals"]) + 1, released=released))
                return True
        except (IndexError, FileNotFoundError):
            return False

    def _content(self, renewals: int, *, released: bool) -> bytes:
        """Return the content of the file, which always has the same length."""
        state = {"owner": self.owner, "seconds": self.seconds, **self._host.process()}
        return json.dumps({**state, "renewals": f"{renewals:012d}", "released": int(released)}).encode()

    def _files(self) -> list[Path]:
        """Return the files of the lease, the highest number last."""
        prefix = f"{self.path.name}-"
        found = self._tried(lambda: [path for path in self.path.parent.iterdir() if path.name.startswith(prefix)], list[Path]())
        return sorted((path for path in found if _NUMBER.fullmatch(path.name.removeprefix(prefix))), key=_number)

    def _read(self, path: Path) -> bytes:
        try:
            return self._tried(lambda: read_bounded(path, MAX_BYTES), b"")
        except ValueError:  # nothing that a driver wrote: it expires as a damaged one does
            return b"?"

    def _tried(self, read: Callable[[], T], missing: T) -> T:
        """Return what `read` returns, or `missing` if there is no such file. Raises TransientError after READ_TRIES failures.

        A file that cannot be read says nothing about its holder: on a file server such failures (EIO, ESTALE) may pass.
        """
        for number in range(READ_TRIES):
            if number:
                self._host.sleep(POLL_SECONDS)
            try:
                return read()
            except (FileNotFoundError, NotADirectoryError):
                return missing
            except OSError as error:
                failure = error
        raise TransientError(
            f"{self.path}: the lease could not be read: {failure.strerror or failure}; check the disk or the server of the store"
        ) from failure


def step_lease(directory: Path, owner: str, seconds: float, host: Host = HOST) -> Lease:
    """Return the lease on making the artifact `directory`."""
    return Lease(directory.with_name(directory.name + ".lease"), owner, seconds, host)


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _holder(content: bytes) -> dict[str, Any]:
    """Return the state in a lease file; {} for one that is damaged, or that its creator has not written."""
    try:
        found = json.loads(content)
        valid = str(found["owner"]) and float(found["seconds"]) >= 0 and int(found["renewals"]) >= 0
        return dict(found) if valid else {}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
