"""Text files of one side, a row on each line: plain, gzip or zstd, or members of archives.

The index of a text file is the number of line feeds before each of its blocks. A compressed file is decompressed once, by one
worker, into a file that is deleted with the checkpoints of the step: workers cannot begin in the middle of compressed bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import durable
from fewstep.documents.document import Languages
from fewstep.streams import MAX_LINE_BYTES
from stages.artifacts import ExternalFile
from stages.context import Context
from stages.corpus.limits import check_line, require_regular
from stages.corpus.lines import blocks_of, decoded_lines, readable
from stages.corpus.packed import compression_of
from stages.corpus.readers.reader import IndexedFile, Span
from stages.errors import DataError, unwritable
from stages.shared.expansion import BLOCK_BYTES

SPAN_BLOCKS = 64
"""Blocks of a text file that one worker counts in one piece."""


class Lines:
    """Text files with a row of one side on each line."""

    format: str = "lines"

    def packed(self, file: ExternalFile) -> bool:
        """Return whether the lines cannot be read from the middle of the file: it is compressed, or a member of an archive.

        Raises DataError for a file that cannot be read.
        """
        if file.member:
            return True
        with readable(file.path):
            require_regular(file.path)
            return compression_of(file.path) is not None

    def spans(self, file: ExternalFile, text: Path, languages: Languages) -> list[Span]:
        """Return the parts of a text file of `SPAN_BLOCKS` blocks. Raises DataError for a file that cannot be read."""
        with readable(file.path):
            require_regular(text)
            size = text.stat().st_size
            step = SPAN_BLOCKS * BLOCK_BYTES
        starts = range(0, size, step) or [0]
        return [Span(self.format, file, text, languages, start, min(start + step, size)) for start in starts]

    def count(self, span: Span) -> list[int]:
        """Return the number of lines that end in each block of a span. A last line without a line feed ends in the last block."""
        counts = []
        last = b"\n"
        for block in _range(span.file.path, span.text, span.start, span.stop):
            counts.append(int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n"))))
            last = block[-1:]
        if last != b"\n" and span.stop == span.text.stat().st_size:
            counts[-1] += 1
        return counts

    def unpack(self, file: ExternalFile, target: Path, languages: Languages, context: Context) -> None:
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

    def line(self, file: IndexedFile, row: int) -> int:
        """Return the number of a line, from 1."""
        return row + 1

    def rows(self, file: ExternalFile, languages: Languages | None) -> int:
        """Return the number of lines of a file, which is decompressed for it."""
        rows = 0
        last = b"\n"
        for block in blocks_of(file.path, file.member):
            rows += block.count(b"\n")
            last = block[-1:]
        return rows + (last != b"\n")

    def read(self, file: IndexedFile, start: int, stop: int, side: str, languages: Languages) -> Iterator[pa.Table]:
        """Yield the lines `start` to `stop` of a text file, each with its line feed, as the column `side`."""
        for lines in lines_of(file, start, stop):
            yield pa.table({side: lines})


def lines_of(file: IndexedFile, start: int, stop: int) -> Iterator[pa.StringArray]:
    """Yield the lines `start` to `stop` of a text file, as `read_lines` does, with the same errors."""
    begin, end = _offset(file, start), _offset(file, stop)
    return decoded_lines(file.shown, _range(file.shown, file.text, begin, end), start, begin)


def _offset(file: IndexedFile, row: int) -> int:
    """Return the byte at which a line begins, or the size of the text for the line after the last one."""
    if row in (0, file.rows):
        return 0 if row == 0 else file.text.stat().st_size
    block = int(np.searchsorted(file.starts, row, "left")) - 1  # the last block with fewer than `row` line feeds before it
    begin = block * BLOCK_BYTES
    feeds = _feeds(b"".join(_range(file.shown, file.text, begin, begin + BLOCK_BYTES)))
    if (number := row - int(file.starts[block]) - 1) >= len(feeds):
        raise DataError(f"{file.shown}: expected {file.rows} lines, got fewer; the file was changed: run again")
    return begin + int(feeds[number]) + 1


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
