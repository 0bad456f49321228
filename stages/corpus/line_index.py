"""An index of the rows of the user's files, with which any range of rows is read without what lies before it.

The index of a text file is the number of line feeds before each of its blocks, and that of a Parquet file the number of rows before
each row group. A compressed text file is decompressed once, by one worker, into a file that is deleted with the checkpoints of the
step: its bytes have no order that would let workers begin in its middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fewstep.streams import MAX_LINE_BYTES
from kernels import durable
from stages.artifacts import ExternalFile
from stages.context import Context
from stages.corpus.limits import check_line, require_regular
from stages.corpus.lines import blocks_of, decoded_lines, readable
from stages.corpus.packed import BLOCK_BYTES, compression_of
from stages.corpus.parquet import group_rows, read_parquet
from stages.errors import DataError, unwritable

SPAN_BLOCKS = 64
"""Blocks of a text file that one worker counts in one piece."""


class Span(NamedTuple):
    """A range of blocks of a text file, or a whole Parquet file."""

    file: ExternalFile
    text: Path
    """The file with its lines: `file`, or its decompressed copy."""
    start: int = 0
    stop: int = 0
    """Bytes."""
    languages: tuple[str, str] | None = None
    """The languages of a Parquet file, which may be the names of its columns; None for a text file."""


@dataclass(frozen=True)
class IndexedFile:
    """A file of one side of a text."""

    file: ExternalFile
    text: Path
    rows: int
    starts: npt.NDArray[np.int64]
    """Rows before each block of `BLOCK_BYTES` bytes, or before each row group."""

    @property
    def shown(self) -> Path:
        """The name of the file in errors and records."""
        return self.file.path / self.file.member

    def lines(self, start: int, stop: int) -> Iterator[pa.StringArray]:
        """Yield the lines `start` to `stop` of a text file, as `read_lines` does, with the same errors."""
        begin, end = self._offset(start), self._offset(stop)
        return decoded_lines(self.shown, _range(self.shown, self.text, begin, end), start, begin)

    def pairs(self, start: int, stop: int, languages: tuple[str, str]) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop` of a Parquet file, as `read_parquet` does."""
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        last = int(np.searchsorted(self.starts, stop, "left"))
        row = int(self.starts[first])
        for table in read_parquet(self.file.path, languages, self.file.columns, range(first, last), row):
            begin, end = max(start - row, 0), min(stop - row, table.num_rows)
            row += table.num_rows
            if begin < end:
                yield table.slice(begin, end - begin)

    def _offset(self, row: int) -> int:
        """Return the byte at which a line begins, or the size of the text for the line after the last one."""
        if row in (0, self.rows):
            return 0 if row == 0 else self.text.stat().st_size
        block = int(np.searchsorted(self.starts, row, "left")) - 1  # the last block with fewer than `row` line feeds before it
        begin = block * BLOCK_BYTES
        feeds = _feeds(b"".join(_range(self.shown, self.text, begin, begin + BLOCK_BYTES)))
        if (number := row - int(self.starts[block]) - 1) >= len(feeds):
            raise DataError(f"{self.shown}: expected {self.rows} lines, got fewer; the file was changed: run again")
        return begin + int(feeds[number]) + 1


def is_packed(file: ExternalFile) -> bool:
    """Return whether the lines of a text file cannot be read from its middle: it is compressed, or a member of an archive.

    Raises DataError for a file that cannot be read.
    """
    if file.member:
        return True
    with readable(file.path):
        require_regular(file.path)
        return compression_of(file.path) is not None


def unpack(file: ExternalFile, target: Path, context: Context) -> None:
    """Decompress a text file, or extract the member that is read, to `target`.

    Raises DataError for a file that is damaged, expands too far or has a long line.
    """
    temporary = context.temporary(target)
    try:
        durable.make_directory(target.parent)
        with temporary.open("wb") as out:
            for block in _without_long_lines(file.path / file.member, blocks_of(file.path, file.member)):
                out.write(block)
        durable.rename(temporary, target)
    except OSError as error:
        raise unwritable(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _without_long_lines(file: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a text. Raises DataError for a line that fills several blocks, before it fills the disk."""
    line = length = 0
    for block in blocks:
        feeds = block.count(b"\n")
        length = length + len(block) if not feeds else len(block) - block.rfind(b"\n") - 1
        line += feeds
        if length > MAX_LINE_BYTES:
            check_line(file, line + 1, length)
        yield block


def spans(file: ExternalFile, text: Path) -> list[Span]:
    """Return the parts of a text file that are counted one by one. Raises DataError for a file that cannot be read."""
    with readable(file.path):
        require_regular(text)
        size, step = text.stat().st_size, SPAN_BLOCKS * BLOCK_BYTES
    return [Span(file, text, start, min(start + step, size)) for start in range(0, size, step)] or [Span(file, text)]


def count(span: Span) -> list[int]:
    """Return the number of lines that end in each block of a span, or of rows in each row group.

    A last line without a line feed ends in the last block. Raises DataError for a file that cannot be read.
    """
    if span.languages is not None:
        return group_rows(span.file.path, span.languages, span.file.columns)
    counts, last = [], b"\n"
    for block in _range(span.file.path, span.text, span.start, span.stop):
        counts.append(int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))))
        last = block[-1:]
    if last != b"\n" and span.stop == span.text.stat().st_size:
        counts[-1] += 1
    return counts


def count_rows(file: ExternalFile, languages: tuple[str, str] | None) -> int:
    """Return the number of rows of a file, of Parquet if `languages` are given. Raises DataError for a file that cannot be read."""
    if languages is not None:
        return sum(group_rows(file.path, languages, file.columns))
    if not is_packed(file):
        return sum(sum(count(span)) for span in spans(file, file.path))
    rows, last = 0, b"\n"
    for block in blocks_of(file.path, file.member):
        rows, last = rows + block.count(b"\n"), block[-1:]
    return rows + (last != b"\n")


def indexed(file: ExternalFile, text: Path, counts: list[int]) -> IndexedFile:
    """Return a file with the index that `count` gives for its spans in order."""
    return IndexedFile(file, text, sum(counts), np.cumsum([0, *counts[:-1]], dtype=np.int64))


def _range(file: Path, text: Path, start: int, stop: int) -> Iterator[bytes]:
    """Yield bytes `start` to `stop` of an uncompressed text in blocks of `BLOCK_BYTES`."""
    with readable(file), text.open("rb") as stream:
        stream.seek(start)
        while start < stop and (block := stream.read(min(BLOCK_BYTES, stop - start))):
            start += len(block)
            yield block


def _feeds(data: bytes) -> npt.NDArray[np.int64]:
    """Return the positions of line feeds."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
