"""Files that survive a power cut: contents reach the disk before their name, and the name before anything relies on it.

A rename orders neither by itself: ext4 and XFS may record a new name before the blocks of the file, so that a machine that loses
power is left with an empty file under its final name (Pillai et al. 2014, "All File Systems Are Not Created Equal", OSDI).
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Answers of file systems that have no way to sync a directory, and of special files."""

CONCURRENT_SYNCS = 8

A = TypeVar("A")
B = TypeVar("B")


class Disk(Protocol):
    """The calls of a file system that `pathlib.Path` lacks. A simulated disk comes with paths of its own."""

    def sync(self, path: Path) -> None:
        """Write the contents of a file, or the names in a directory, to the disk. Raises OSError."""
        ...

    def each(self, function: Callable[[A], B], items: Iterable[A], at_once: int) -> list[B]:
        """Call a function that reads or writes files for several items at the same time. Raises what it raises."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it, as far as possible. A missing one is skipped."""
        ...

    def lock(self, path: Path, *, shared: bool) -> AbstractContextManager[None]:
        """Hold an advisory lock on a file, exclusive unless `shared`. Waits until it is free."""
        ...


class RealDisk:
    """The file systems of this machine."""

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in NO_SYNC:
                raise
        finally:
            os.close(descriptor)

    def each(self, function: Callable[[A], B], items: Iterable[A], at_once: int) -> list[B]:
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(function, items))

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def lock(self, path: Path, *, shared: bool) -> Iterator[None]:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield


DISK = RealDisk()


def sync(path: Path, disk: Disk = DISK) -> None:
    """Write the contents of a file, or the names in a directory, to the disk. Raises OSError."""
    disk.sync(path)


def sync_tree(directory: Path, skip: Sequence[str] = (), disk: Disk = DISK) -> None:
    """Sync a directory with all files and directories below it, at the same time: one flush of the disk then serves several.

    Entries of `directory` that are named in `skip` are left out, with everything in them. Raises OSError.
    """
    disk.each(disk.sync, _tree(directory, skip), CONCURRENT_SYNCS)


def _tree(directory: Path, skip: Sequence[str] = ()) -> Iterator[Path]:
    for entry in sorted(directory.iterdir()):
        if entry.name in skip:
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _tree(entry)
        elif entry.is_file():
            yield entry
    yield directory


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


def make_directory(path: Path, disk: Disk = DISK) -> None:
    """Create a directory with its missing parents, each under a name that outlasts a power cut. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent, disk)
    path.mkdir(exist_ok=True)
    disk.sync(path.parent)


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
