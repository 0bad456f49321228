"""Members of archives as streams. An archive is read in place: nothing is extracted, and no path in it is used."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, NoReturn

from fewstep.text.escape import escaped_line
from stages.errors import DataError
from stages.shared.tar import TarError, tar_members

MAX_SHOWN = 8
"""Members that an error lists."""
MAX_COMPARED = 1000
"""Members among which an error looks for similar names."""
MAX_COMPARED_CHARACTERS = 100
"""Characters of such names: comparing two takes the product of their lengths."""
MAX_MEMBERS = 100_000
MAX_ZIP_READ_BYTES = 32 << 20
"""Most bytes that are read from a zip archive at once, as its directory is."""
DAMAGED = (  # of archives that are truncated, damaged, encrypted, of an unknown compression, or that take too much memory
    EOFError,
    zlib.error,
    lzma.LZMAError,
    TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    MemoryError,
)
"""Errors of the readers of archives."""


def member_names(path: Path) -> list[str]:
    """Return the names of the files in an archive, in its order. Raises DataError if it is no archive or damaged."""
    with _explained(path):
        if zipfile.is_zipfile(path):
            with _zip(path) as archive:
                return _few(info.filename for info in archive.infolist() if not info.is_dir())
        return _few(member.name for member in tar_members(path) if member.regular)


def _few(names: Iterator[str]) -> list[str]:
    found = list[str]()
    for name in names:
        found.append(name)
        if len(found) > MAX_MEMBERS:
            raise TarError(f"more than {MAX_MEMBERS:,} files")
    return found


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with _Bounded(path, "rb") as file, zipfile.ZipFile(file) as archive:
        yield archive


class _Bounded(io.FileIO):
    """A file that refuses to be read in larger parts than `MAX_ZIP_READ_BYTES`: a sparse file may claim a directory of any size."""

    def read(self, size: int | None = -1, /) -> Any:
        """Return bytes of the file. Raises BadZipFile for too many."""
        if size is not None and size > MAX_ZIP_READ_BYTES:
            raise zipfile.BadZipFile(f"a directory of {size:,} bytes, more than {MAX_ZIP_READ_BYTES:,}")
        return super().read(size)


def read_member(path: Path, member: str, read: Callable[[IO[bytes]], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the blocks that `read` yields for the stream of a member.

    Raises DataError if there is no such member or the archive is damaged.
    """
    with _explained(path):
        if zipfile.is_zipfile(path):
            with _zip(path) as archive:
                if member not in archive.namelist():
                    _missing(path, member, archive.namelist())
                if archive.getinfo(member).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    # The library expands all that it has read of the others, which is without bound.
                    raise zipfile.BadZipFile(f"{member}: a compression other than deflate")
                with archive.open(member) as file:
                    yield from read(file)
            return
        names: list[str] = []
        for found in tar_members(path):
            names += [found.name] if len(names) < MAX_MEMBERS else []
            if found.name == member and found.regular:
                yield from read(found.content)
                return
        _missing(path, member, names)


def _missing(path: Path, member: str, names: list[str]) -> NoReturn:
    near = get_close_matches(member, [name[:MAX_COMPARED_CHARACTERS] for name in names[:MAX_COMPARED]], n=MAX_SHOWN, cutoff=0.0)
    more = f", ... ({len(names)} files)" if len(names) > len(near) else ""
    shown = ", ".join(map(escaped_line, near)) or "an empty archive"
    raise DataError(f"{path}: expected the member {member} in the archive, got {shown}{more}; correct its name")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise DataError in place of the errors of a damaged archive. Errors of the file system pass."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(
            f"{path}: expected an intact archive (zip, tar, tar.gz, tgz), got: {error or type(error).__name__}; replace the file"
        ) from error


def matching_members(path: Path, patterns: Sequence[str]) -> list[str]:
    """Return the one member of an archive that matches each pattern. Raises DataError unless there is exactly one for each."""
    names = member_names(path)
    found = []
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if len(matching) != 1:
            shown = ", ".join(map(escaped_line, (matching or names)[:MAX_SHOWN])) or "an empty archive"
            raise DataError(
                f"{path}: expected one member that matches {pattern}, got {len(matching)} of {len(names)} files: {shown}"
            )
        found += matching
    return found
