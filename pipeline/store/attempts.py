"""The directories in which attempts make an artifact: `<fingerprint>.partial-<attempt>`, one for each attempt.

An attempt takes over the finished pieces of its predecessor by renaming the predecessor's directory. A predecessor that still runs,
or that wakes up later, then finds no directory to write to, to commit or to clean.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path

import durable
from pipeline.store.files import discard
from pipeline.store.host import HOST, Host
from pipeline.store.lease import Lease
from stages.artifacts import CHECKPOINTS, MANIFEST, RECORDS, SHARDS, STOP
from stages.errors import unwritable

PARTIAL = ".partial"
_NAME = re.compile(rf"(.+){re.escape(PARTIAL)}(?:-[\w-]+)?")
"""Earlier versions had one directory for all attempts, without an id in its name."""


def partial_directory(directory: Path, attempt: str) -> Path:
    """Return the directory in which an attempt makes the artifact `directory`."""
    return directory.with_name(f"{directory.name}{PARTIAL}-{attempt}")


def is_partial(path: Path) -> bool:
    """Return whether a path has the name of the directory of an attempt."""
    return _NAME.fullmatch(path.name) is not None


def partial_directories(directory: Path) -> list[Path]:
    """Return the directories of all attempts at the artifact `directory`, the latest last. No attempt makes a link."""
    try:
        named = [path for path in directory.parent.iterdir() if (m := _NAME.fullmatch(path.name)) and m[1] == directory.name]
        found = [path for path in named if not path.is_symlink()]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
    except FileNotFoundError:  # no step of this stage has begun, or an attempt has just ended
        return []


def begin_attempt(directory: Path, lease: Lease, host: Host = HOST) -> Path:
    """Return the directory of the attempt that holds the lease, with the finished pieces of earlier attempts, whose directories are
    gone.

    The lease is checked between the listing and the renames: the listed attempts have then lost it for good, however long this
    process sleeps before it renames them. Raises LeaseLostError without the lease, StageError if the directory cannot be made.
    """
    partial = partial_directory(directory, lease.owner)
    try:
        earlier = sorted(partial_directories(directory), key=_count_pieces, reverse=True)
        lease.check()
        for path in earlier:
            _take_over(path, partial, host)
        durable.make_directory(partial, host.disk)
        _tidy(partial, host)
    except OSError as error:
        raise unwritable(partial, error) from error
    return partial


def discard_attempts(directory: Path, lease: Lease | None, host: Host = HOST) -> None:
    """Remove the directories of attempts that have lost the lease. Whatever cannot be removed is left to `gc`."""
    earlier = partial_directories(directory)
    if lease is None or lease.held():
        for path in earlier:
            with suppress(OSError):
                discard(path, host)


def _take_over(path: Path, partial: Path, host: Host) -> None:
    """Rename the directory of an earlier attempt, or remove it if the new attempt has pieces already."""
    try:
        if partial.exists():
            discard(path, host)
        else:
            path.rename(partial)
            _refresh_listing(partial)
    except FileNotFoundError:  # the attempt has just ended
        pass


def _refresh_listing(partial: Path) -> None:
    """Change a directory so that a client of NFS lists it again, which may remember its listing from an earlier attempt."""
    probe = partial / f"{partial.name}.tmp"
    probe.touch()
    probe.unlink()


def _count_pieces(partial: Path) -> int:
    """Return the number of pieces of an attempt. (An attempt that lost its directory and goes on makes a new one with few of them.)

    The directory itself is not listed: a client of NFS would then believe this listing for a while, and `_tidy` needs a fresh one.
    """
    try:
        return sum(1 for name in (CHECKPOINTS, SHARDS) for _ in (partial / name).glob("*"))
    except FileNotFoundError:
        return 0


def _tidy(partial: Path, host: Host) -> None:
    """Leave only finished pieces of earlier attempts, none of which an earlier attempt can still write to.

    Checkpoints and shards got their names when they were complete, so that nobody has them open. Other results may be open: they
    are replaced by copies. Records carry the ids of their attempts.
    """
    for name in (MANIFEST, STOP):
        (partial / name).unlink(missing_ok=True)
    for path in [*partial.rglob("*.tmp"), *(partial / CHECKPOINTS).glob("ray-*")]:
        if path.is_dir():
            host.disk.remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    for path in list(partial.rglob("*")):
        if path.relative_to(partial).parts[0] not in (RECORDS, CHECKPOINTS, SHARDS) and path.is_file():
            _replace_by_copy(path, path.with_name(f"{path.name}.{host.token()}.tmp"))


def _replace_by_copy(path: Path, temporary: Path) -> None:
    with path.open("rb") as source, temporary.open("wb") as target:
        shutil.copyfileobj(source, target)
    temporary.replace(path)
