"""Files that survive a power cut: contents reach the disk before their name, and the name before anything relies on it.

A rename orders neither by itself: ext4 and XFS may record a new name before the blocks of the file, so that a machine that loses
power is left with an empty file under its final name (Pillai et al. 2014, "All File Systems Are Not Created Equal", OSDI).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, TypeVar

NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
"""Answers of file systems that have no way to sync a directory or nothing to sync, and of special files (fsync(2))."""

NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""Answers of file systems and systems that cannot exchange two names at once, such as NFS (renameat2(2))."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2

WAIT_SECONDS, REMINDER_SECONDS, LOCK_POLL_SECONDS = 0.5, 60.0, 0.05
MAX_HOLDER = 4096

_OCTAL = re.compile(r"\\([0-7]{3})")
"""Escaped characters of a path in /proc/self/mountinfo: space, tab, line feed and backslash."""

CONCURRENT_SYNCS = 8
READ_BYTES = 2**18

A = TypeVar("A")
B = TypeVar("B")


class Status(Protocol):
    """The status of a file, as `os.stat_result` has it."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ctime_ns(self) -> int: ...


class Disk(Protocol):
    """The calls of a file system that `pathlib.Path` lacks. A simulated disk comes with paths of its own.

    Directories of ten thousand files are common. The methods for many files take names relative to a directory, since a `Path` for
    each file takes longer than the calls of the system.
    """

    @property
    def lasting(self) -> set[Path]:
        """Directories whose names outlast a power cut, as far as this process knows."""
        ...

    def sync(self, path: Path) -> None:
        """Write the contents of a file, or the names in a directory, to the disk. Raises OSError."""
        ...

    def walk(self, directory: Path, skip: Sequence[str] = ()) -> tuple[list[str], list[str]]:
        """Return the sorted names of all files below a directory, and the names of all folders: the directory itself is "".

        Entries of `directory` that are named in `skip` are left out, with everything in them. Raises OSError.
        """
        ...

    def statuses(self, directory: Path, names: Iterable[str]) -> list[Status | None]:
        """Return the status of each file, or None for a missing one. Links are not followed."""
        ...

    def digests(self, directory: Path, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        """Yield the size in bytes and the sha256 (64 hex digits) of each file. Raises OSError."""
        ...

    def sync_all(self, directory: Path, names: Sequence[str]) -> None:
        """Sync files and folders of a directory at the same time: one flush of the disk then serves several. Raises OSError."""
        ...

    def each(self, function: Callable[[A], B], items: Iterable[A], at_once: int) -> list[B]:
        """Call a function that reads or writes files for several items at the same time. Raises what it raises."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it, as far as possible. A missing one is skipped."""
        ...

    def exchange(self, first: Path, second: Path) -> None:
        """Exchange the names of two directories at once. Raises OSError; its number is in NO_EXCHANGE where that is impossible."""
        ...

    def lock(self, path: Path, *, shared: bool, holder: str, waiting: Callable[[str], object]) -> AbstractContextManager[None]:
        """Hold an advisory lock on a file, exclusive unless `shared`. Waits until it is free.

        The file has the `holder` as its content; of several that share it, the first one. Once it has waited for WAIT_SECONDS, and
        then each minute, `waiting` is called with the content.
        """
        ...

    def mounts(self) -> frozenset[str]:
        """Return the paths, without links, at which file systems or parts of them are mounted; empty where that is unknown."""
        ...


class RealDisk:
    """The file systems of this machine."""

    def __init__(self) -> None:
        self.lasting: set[Path] = set()

    def sync(self, path: Path) -> None:
        _sync(os.fspath(path))

    def walk(self, directory: Path, skip: Sequence[str] = ()) -> tuple[list[str], list[str]]:
        files: list[str] = []
        folders = [""]
        for folder in folders:  # grows meanwhile
            with os.scandir(directory / folder) as entries:
                for entry in entries:
                    if not folder and entry.name in skip:
                        continue
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    elif entry.is_file():
                        files.append(name)
        return sorted(files), folders

    def statuses(self, directory: Path, names: Iterable[str]) -> list[Status | None]:
        return [_status(f"{directory}/{name}") for name in names]

    def digests(self, directory: Path, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        buffer = memoryview(bytearray(READ_BYTES))
        for name in names:
            yield _digest(f"{directory}/{name}", buffer)

    def sync_all(self, directory: Path, names: Sequence[str]) -> None:
        shares = [names[start::CONCURRENT_SYNCS] for start in range(min(CONCURRENT_SYNCS, len(names)))]

        def sync_share(share: Sequence[str]) -> None:
            for name in share:
                _sync(f"{directory}/{name}")

        self.each(sync_share, shares, CONCURRENT_SYNCS)

    def each(self, function: Callable[[A], B], items: Iterable[A], at_once: int) -> list[B]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(function, items))

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def exchange(self, first: Path, second: Path) -> None:
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux 3.15, glibc 2.28
        if call is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(first))
        if call(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(first))

    @contextmanager
    def lock(self, path: Path, *, shared: bool, holder: str, waiting: Callable[[str], object]) -> Iterator[None]:
        with path.open("a+", encoding="utf-8", errors="replace") as file:
            due = time.monotonic() + WAIT_SECONDS
            while not (alone := _locks(file, fcntl.LOCK_EX)) and not (shared and _locks(file, fcntl.LOCK_SH)):
                if time.monotonic() >= due:
                    file.seek(0)
                    waiting(file.read(MAX_HOLDER))
                    due = time.monotonic() + REMINDER_SECONDS
                time.sleep(LOCK_POLL_SECONDS)
            if alone:
                _replace_content(file, holder)
                if shared:
                    fcntl.flock(file, fcntl.LOCK_SH)
            try:
                yield
            finally:
                if alone:
                    _replace_content(file, "")

    def mounts(self) -> frozenset[str]:
        try:
            lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        except OSError:
            return frozenset()
        return frozenset(_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines if line)


def _locks(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace_content(file: IO[str], text: str) -> None:
    with suppress(OSError):  # a full disk takes nothing but the name of the holder
        file.truncate(0)
        file.write(text)
        file.flush()


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _status(path: str) -> Status | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):  # no file can have the name
        return None


def _digest(path: str, buffer: memoryview) -> tuple[int, str]:
    """Return the size and the sha256 of a file. `hashlib.file_digest` would allocate a buffer for each file, which takes longer."""
    digest = hashlib.sha256()
    size = 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while count := os.readv(descriptor, [buffer]):
            digest.update(buffer[:count])
            size += count
    finally:
        os.close(descriptor)
    return size, digest.hexdigest()


DISK = RealDisk()


def sync(path: Path, disk: Disk = DISK) -> None:
    """Write the contents of a file, or the names in a directory, to the disk. Raises OSError."""
    disk.sync(path)


def sync_tree(directory: Path, skip: Sequence[str] = (), disk: Disk = DISK) -> None:
    """Sync a directory with all files and directories below it.

    Entries of `directory` that are named in `skip` are left out, with everything in them. Raises OSError.
    """
    files, folders = disk.walk(directory, skip)
    disk.sync_all(directory, [*files, *folders])


def rename(source: Path, target: Path, disk: Disk = DISK) -> None:
    """Give a file, or a directory with everything in it, its final name; both outlast a power cut. Replaces a file.

    Raises OSError.
    """
    if source.is_dir():
        sync_tree(source, disk=disk)
    else:
        disk.sync(source)
    source.replace(target)
    disk.sync(target.parent)


def replace_directory(source: Path, target: Path, aside: Path, disk: Disk = DISK) -> None:
    """Give a synced directory the name of another one, which is `aside` afterwards. The name lasts when this returns.

    Where the file system can exchange names, the target is there at any moment. Elsewhere it is missing for a moment, and stays so
    if this process ends in it. Raises OSError.
    """
    try:
        disk.exchange(source, target)
        source.rename(aside)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        target.rename(aside)
        source.rename(target)
    disk.sync(target.parent)


def make_directory(path: Path, disk: Disk = DISK) -> None:
    """Create a directory with its missing parents, each under a name that outlasts a power cut. Raises OSError.

    The name of one that is there already is synced once: the process that made it may not have come so far.
    """
    exists = path.is_dir()
    if exists and (path in disk.lasting or path == path.parent):
        return
    make_directory(path.parent, disk)
    if not exists:
        path.mkdir(exist_ok=True)
    try:
        disk.sync(path.parent)
    except PermissionError:  # a directory that this user may enter but not list
        if not exists:
            raise
    if exists:
        disk.lasting.add(path)


def write_whole(path: Path, write: Callable[[Path], object], temporary: Path | None = None, disk: Disk = DISK) -> None:
    """Call `write` with a temporary name beside `path`, then rename the file; it is there whole or not at all.

    Raises OSError, or whatever `write` raises.
    """
    temporary = temporary or path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        rename(temporary, path, disk)
    finally:
        temporary.unlink(missing_ok=True)
