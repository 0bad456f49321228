"""Read parallel text as a stream of tables: lines (plain, gzip or zstd), tab-separated columns, or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.limits import MAX_LINE_BYTES, check_line, require_regular, within_ratio
from stages.errors import DataError
from stages.shards import rechunk

BATCH_ROWS = 16384
BLOCK_BYTES = 4 << 20

Side = tuple[ExternalFile, ...]
Read = Callable[[str, ExternalFile], Iterator[pa.Table]]
"""A function that reads one file of the named side."""


@dataclass(frozen=True)
class Count:
    """Number of lines of one input file."""

    side: str
    file: ExternalFile
    lines: int


@dataclass
class Reader:
    """Reader of a text.

    Tables have the columns source and target and one column for each further reference (`reference 2`, ...). All methods raise
    DataError for files that are missing, truncated, badly encoded, of unequal length or of the wrong shape.
    """

    source_language: str
    target_language: str
    counts: list[Count] = field(default_factory=list)
    """Lines of each file that was read."""

    def read(self, files: TextFiles) -> Iterator[pa.Table]:
        """Yield all rows of a text, in order, in tables of at most `BATCH_ROWS` rows."""
        given = [name for name in ("source", "tsv", "parquet") if getattr(files, name)]
        if len(given) != 1 or bool(files.source) != bool(files.target):
            raise DataError(
                f"corpus files: expected source and target, or tsv, or parquet, got {', '.join(given) or 'no files'}; "
                "give the files in one of these ways"
            )
        references = {f"reference {number}": side for number, side in enumerate(files.references, 2)}
        if files.source:
            sides = {"source": files.source, "target": files.target, **references}
            yield from self._joined({name: (side, self._lines) for name, side in sides.items()})
            return
        name, side = (given[0], files.tsv or files.parquet)
        read = self._tsv if files.tsv else self._parquet
        yield from self._joined({name: (side, read)} | {name: (side, self._lines) for name, side in references.items()})

    def _joined(self, sides: dict[str, tuple[Side, Read]]) -> Iterator[pa.Table]:
        """Join the sides row by row.

        If all sides have the same number of files, corresponding files must have the same number of lines; otherwise the totals
        must agree.
        """
        numbers = {len(side) for side, _ in sides.values()}
        groups = [slice(i, i + 1) for i in range(numbers.pop())] if len(numbers) == 1 else [slice(None)]
        for group in groups:
            streams = [_stream(name, side[group], read) for name, (side, read) in sides.items()]
            start = len(self.counts)
            for tables in zip_longest(*streams):
                if len({0 if table is None else table.num_rows for table in tables}) > 1:
                    for stream in streams:
                        for _ in stream:
                            pass
                    raise _unequal(self.counts[start:])
                yield _side_by_side(tables)

    def _lines(self, side: str, file: ExternalFile) -> Iterator[pa.Table]:
        total = 0
        for lines in read_lines(file.path):
            total += len(lines)
            yield pa.table({side: lines})
        self.counts.append(Count(side, file, total))

    def _tsv(self, side: str, file: ExternalFile) -> Iterator[pa.Table]:
        total = 0
        for lines in read_lines(file.path):
            tabs = pc.count_substring(lines, "\t").to_numpy()
            if (wrong := np.flatnonzero(tabs != 1)).size:
                raise DataError(
                    f"{file.path}, line {total + int(wrong[0]) + 1}: expected two columns, source<TAB>target, "
                    f"got {int(tabs[wrong[0]]) + 1}; remove or repair the line"
                )
            total += len(lines)
            columns = pc.split_pattern(lines, "\t").flatten()
            yield pa.table({"source": columns[::2], "target": columns[1::2]})
        self.counts.append(Count(side, file, total))

    def _parquet(self, side: str, file: ExternalFile) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        with _readable(file.path):
            parquet = pq.ParquetFile(file.path)
            names = self._columns(file.path, parquet.schema_arrow)
        batches = parquet.iter_batches(BATCH_ROWS, columns=list(names))
        total = 0
        while True:
            with _readable(file.path):
                batch = next(batches, None)
            if batch is None:
                break
            columns = [_strings(batch.column(name), file.path, name, total) for name in names]
            total += batch.num_rows
            yield pa.table(columns, ["source", "target"])
        self.counts.append(Count(side, file, total))

    def _columns(self, path: Path, schema: pa.Schema) -> tuple[str, str]:
        for pair in (("source", "target"), (self.source_language, self.target_language)):
            if set(pair) <= set(schema.names):
                return pair
        strings = [column.name for column in schema if _is_string(column.type)]
        if len(strings) == 2:
            return strings[0], strings[1]
        raise DataError(
            f"{path}: expected columns source and target, or {self.source_language} and {self.target_language}, or exactly two "
            f"columns of strings, got {', '.join(f'{column.name} ({column.type})' for column in schema) or 'no columns'}; "
            "rename the columns"
        )


def _stream(name: str, side: Side, read: Read) -> Iterator[pa.Table]:
    return rechunk((table for file in side for table in read(name, file)), BATCH_ROWS)


def read_lines(path: Path) -> Iterator[pa.StringArray]:
    """Yield the lines of a text file in order, each with its line feed. Files ending in `.gz` and `.zst` are decompressed.

    Only a line feed ends a line. Raises DataError for a file that cannot be read and for invalid UTF-8, with line and byte.
    """
    line, position, rest = 0, 0, b""
    for block in _blocks(path):
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


def _blocks(path: Path) -> Iterator[bytes]:
    with _readable(path):
        require_regular(path)
        with _open(path) as file:
            yield from within_ratio(path, iter(lambda: file.read(BLOCK_BYTES), b""))


def _open(path: Path) -> pa.NativeFile:
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    return pa.input_stream(path, compression=compression)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path}: expected a file, got none; check the path in the config") from error
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: expected a readable {path.suffix or 'text'} file, got: {error}; repair or replace the file"
        ) from error


def _is_string(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _strings(column: pa.Array, path: Path, name: str, start: int) -> pa.StringArray:
    """Return a Parquet column as valid strings; a missing value becomes an empty string. `start` is the number of its first row."""
    if not _is_string(column.type):
        raise DataError(f"{path}, column {name}: expected strings, got {column.type}; convert the column")
    strings = pc.fill_null(column.cast(pa.string()), "")
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        for row, value in enumerate(strings.cast(pa.binary())):
            try:
                value.as_py().decode("utf-8")
            except UnicodeDecodeError as wrong:
                raise DataError(
                    f"{path}, column {name}, row {start + row + 1}: expected UTF-8, got an invalid byte at position {wrong.start}: "
                    f"{wrong.reason}; convert the column to UTF-8"
                ) from error
        raise
    return strings


def _side_by_side(tables: Iterable[pa.Table]) -> pa.Table:
    columns: dict[str, Any] = {}
    for table in tables:
        columns.update(zip(table.column_names, table.columns, strict=True))
    return pa.table(columns)


def _unequal(counts: list[Count]) -> DataError:
    lines = [f"{count.side}: {count.lines} lines in {count.file.path}" for count in counts]
    sums = {
        side: sum(count.lines for count in counts if count.side == side) for side in dict.fromkeys(count.side for count in counts)
    }
    totals = ", ".join(f"{side} {total}" for side, total in sums.items())
    return DataError(
        f"corpus files: expected the same number of lines on all sides, got {totals} ({'; '.join(lines)}); align the files line "
        "by line"
    )
