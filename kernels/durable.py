"""Files that survive a power cut: contents reach the disk before their name, and the name before anything relies on it.

A rename orders neither by itself: ext4 and XFS may record a new name before the blocks of the file, so that a machine that loses
power is left with an empty file under its final name (Pillai et al. 2014, "All File Systems Are Not Created Equal", OSDI).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Answers of file systems that have no way to sync a directory, and of special files."""

CONCURRENT_SYNCS = 8


def sync(path: Path) -> None:
    """Write the contents of a file, or the names in a directory, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_tree(directory: Path, skip: Sequence[str] = ()) -> None:
    """Sync a directory with all files and directories below it, at the same time: one flush of the disk then serves several.

    Entries of `directory` that are named in `skip` are left out, with everything in them. Raises OSError.
    """
    with ThreadPoolExecutor(CONCURRENT_SYNCS) as pool:
        for _ in pool.map(sync, _tree(directory, skip)):
            pass


def _tree(directory: Path, skip: Sequence[str] = ()) -> Iterator[Path]:
    for entry in sorted(directory.iterdir()):
        if entry.name in skip:
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _tree(entry)
        elif entry.is_file():
            yield entry
    yield directory


def rename(source: Path, target: Path) -> None:
    """Give a file, or a directory with everything in it, its final name; both outlast a power cut. Replaces a file.

    Raises OSError.
    """
    if source.is_dir():
        sync_tree(source)
    else:
        sync(source)
    os.replace(source, target)
    sync(target.parent)


def make_directory(path: Path) -> None:
    """Create a directory with its missing parents, each under a name that outlasts a power cut. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def write_whole(path: Path, write: Callable[[Path], object], temporary: Path | None = None) -> None:
    """Call `write` with a temporary name beside `path`, then rename the file; it is there whole or not at all.

    Raises OSError, or whatever `write` raises.
    """
    temporary = temporary or path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
