"""Lines of text files, which may be compressed, as a stream."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from fewstep.access import access_problem
from fewstep.streams import MAX_LINE_BYTES
from stages.corpus.limits import check_line, require_regular
from stages.corpus.packed import text_blocks
from stages.errors import DataError
from stages.shared.expansion import within_ratio
from stages.shared.members import read_member


def read_lines(path: Path, member: str = "") -> Iterator[pa.StringArray]:
    """Yield the lines of a text file, or of a member of an archive, in order, each with its line feed.

    Files and members that are compressed with gzip, zstd, bzip2 or xz are decompressed, whatever their names.

    Only a line feed ends a line. Raises DataError for a file that cannot be read and for invalid UTF-8, with line and byte.
    """
    return decoded_lines(path / member, blocks_of(path, member))


def decoded_lines(path: Path, blocks: Iterable[bytes], line: int = 0, position: int = 0) -> Iterator[pa.StringArray]:
    """Yield the lines in the blocks of the text of a file, each with its line feed. The text begins at byte `position` after
    `line` lines, which errors name.

    Raises DataError for invalid UTF-8 and for a line that is too long.
    """
    rest = b""
    for block in blocks:
        head, feed, tail = block.rpartition(b"\n")
        if not feed:
            rest += block
            check_line(path, line + 1, len(rest))
            continue
        lines = _decoded(path, rest + head + feed, line, position)
        line, position, rest = line + len(lines), position + len(rest) + len(head) + 1, tail
        yield lines
    if rest:
        yield _decoded(path, rest, line, position)


def _decoded(path: Path, data: bytes, line: int, position: int) -> pa.StringArray:
    """Return the lines in `data` without copying their bytes. `data` starts at byte `position` of the file, after `line` lines."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1)
        raise DataError(
            f"{path}, line {line}: expected UTF-8, got byte 0x{data[error.start]:02x} at byte {column} of the line "
            f"(byte {position + error.start} of the text): {error.reason}; convert the file to UTF-8"
        ) from error
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")).astype(np.int32) + 1
    offsets = np.concatenate([[0], ends, [len(data)] if not data.endswith(b"\n") else []]).astype(np.int32)
    if (longest := np.diff(offsets)).max(initial=0) > MAX_LINE_BYTES:
        number = int(np.argmax(longest > MAX_LINE_BYTES))
        check_line(path, line + number + 1, int(longest[number]))
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def blocks_of(path: Path, member: str = "", *, wide: bool = False) -> Iterator[bytes]:
    """Yield the text of a file, or of a member of an archive, decompressed, in blocks of at most `BLOCK_BYTES`.

    `wide`: the text may be in UTF-16, which its bytes stay in.

    Raises DataError for a file that cannot be read.
    """
    with readable(path):
        require_regular(path)
        read = partial(text_blocks, name=path / member, wide=wide)
        if member:
            yield from within_ratio(path, read_member(path, member, read))
            return
        with path.open("rb") as file:
            yield from within_ratio(path, read(file))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise DataError in place of the errors of a file that is missing or cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: expected a file, got none; check the path in the config") from error
    except PermissionError as error:
        raise DataError(access_problem(path, error)) from error
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: expected a readable {path.suffix or 'text'} file, got: {error}; repair or replace the file"
        ) from error
