"""Members of archives as streams. An archive is read in place: nothing is extracted, and no path in it is used."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, NoReturn

from stages.errors import DataError

MAX_SHOWN = 8
"""Members that an error lists."""
DAMAGED = (  # of archives that are truncated, damaged, encrypted or of an unknown compression
    EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError,
)  # fmt: skip
"""Errors of the standard library."""


def member_names(path: Path) -> list[str]:
    """Return the names of the files in an archive, in its order. Raises DataError if it is no archive or damaged."""
    with _explained(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return [info.filename for info in archive.infolist() if not info.is_dir()]
        with tarfile.open(path, "r|*") as stream:
            return [info.name for info in stream if info.isreg()]


def read_member(path: Path, member: str, read: Callable[[IO[bytes]], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the blocks that `read` yields for the stream of a member.

    Raises DataError if there is no such member or the archive is damaged.
    """
    with _explained(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if member not in archive.namelist():
                    _missing(path, member, archive.namelist())
                with archive.open(member) as file:
                    yield from read(file)
            return
        with tarfile.open(path, "r|*") as stream:
            names: list[str] = []
            for info in stream:
                names.append(info.name)
                if info.name == member and info.isreg() and (found := stream.extractfile(info)):
                    yield from read(found)
                    return
            _missing(path, member, names)


def _missing(path: Path, member: str, names: list[str]) -> NoReturn:
    near = get_close_matches(member, names, n=MAX_SHOWN, cutoff=0.0)
    more = f", ... ({len(names)} files)" if len(names) > len(near) else ""
    raise DataError(
        f"{path}: expected the member {member} in the archive, got {', '.join(near) or 'an empty archive'}{more}; correct its name"
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise DataError in place of the errors of a damaged archive. Errors of the file system pass."""
    try:
        yield
    except DAMAGED as error:
        raise DataError(
            f"{path}: expected an intact archive (zip, tar, tar.gz, tgz), got: {error or type(error).__name__}; replace the file"
        ) from error
