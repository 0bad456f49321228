"""Read parallel text by ranges of rows: lines (plain, gzip or zstd), tab-separated columns, or Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import ExternalFile
from stages.context import WorkerContext
from stages.corpus import TextFiles
from stages.corpus.limits import within_batches
from stages.corpus.line_index import IndexedFile, Span, count, indexed, spans, unpack, unpacked
from stages.corpus.phases import Phases
from stages.errors import DataError
from stages.shards import rechunk

BATCH_ROWS = 16384

QUICK_BYTES, MAX_QUICK_FILES = 32 << 20, 20
"""Size of files that are decompressed or counted sooner than workers are ready, together, and their number."""


@dataclass(frozen=True)
class Side:
    """One column of a text, or both if `kind` is tsv or parquet: files that are concatenated in order."""

    name: str
    kind: str
    files: tuple[IndexedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def read(self, start: int, stop: int, languages: tuple[str, str]) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop`."""
        before = 0
        for file in self.files:
            begin, end = max(start - before, 0), min(stop - before, file.rows)
            before += file.rows
            if begin < end:
                yield from self._read(file, begin, end, languages)

    def _read(self, file: IndexedFile, start: int, stop: int, languages: tuple[str, str]) -> Iterator[pa.Table]:
        if self.kind == "parquet":
            yield from file.pairs(start, stop, languages)
        elif self.kind == "tsv":
            for lines in file.lines(start, stop):
                yield _columns(file, lines, start)
                start += len(lines)
        else:
            for lines in file.lines(start, stop):
                yield pa.table({self.name: lines})


@dataclass(frozen=True)
class IndexedText:
    """A text whose rows can be read from anywhere: groups of sides of equal length, one after another.

    Tables have the columns source and target and one column for each further reference (`reference 2`, ...). Reading raises
    DataError for files that are badly encoded or of the wrong shape.
    """

    languages: tuple[str, str]
    groups: tuple[tuple[Side, ...], ...]

    @property
    def rows(self) -> int:
        return sum(self.batches())

    def batches(self) -> Iterator[int]:
        """Yield the numbers of rows of the tables in which the whole text is read."""
        for group in self.groups:
            rows = group[0].rows
            yield from [BATCH_ROWS] * (rows // BATCH_ROWS) + [rows % BATCH_ROWS] * (rows % BATCH_ROWS > 0)

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop` in order, in tables of at most `BATCH_ROWS` rows."""
        before = 0
        for group in self.groups:
            begin, end = max(start - before, 0), min(stop - before, group[0].rows)
            before += group[0].rows
            if begin < end:
                streams = [_stream(side.read(begin, end, self.languages)) for side in group]
                yield from _side_by_side(group, zip_longest(*streams), end - begin)

    def counts(self) -> Iterator[tuple[str, IndexedFile]]:
        """Yield the side and index of each file, in the order in which a reader of tables of `BATCH_ROWS` rows comes to its end."""
        for group in self.groups:
            ends = [
                (int(end) // BATCH_ROWS, number, side.name, file)
                for number, side in enumerate(group)
                for end, file in zip(np.cumsum([file.rows for file in side.files]), side.files, strict=True)
            ]
            yield from ((name, file) for _, _, name, file in sorted(ends, key=lambda end: end[:2]))


def open_text(files: TextFiles, languages: tuple[str, str], folder: Path, phases: Phases) -> IndexedText:
    """Index the files of a text; compressed ones are decompressed below `folder`.

    Raises DataError for files that are missing, truncated, or of unequal length.
    """
    sides = _sides(files)
    texts = _texts(sides, folder, phases)
    entries = list(dict.fromkeys((kind, file) for kind, side in sides.values() for file in side))
    wanted = [(file.path, texts.get(file.path, file.path), languages if kind == "parquet" else None) for kind, file in entries]
    ((_, parts),) = phases.map(make_lister, None, [wanted])
    every = [span for its_spans in parts for span in its_spans]
    quick = sum(span.stop - span.start for span in every) <= QUICK_BYTES and len(every) <= MAX_QUICK_FILES
    counts: dict[int, list[int]] = dict(phases.map(make_counter, None, every, quick=quick))
    index, first = dict[tuple[str, ExternalFile], IndexedFile](), 0
    for (kind, file), its_spans in zip(entries, parts, strict=True):
        found = [rows for number in range(first, first + len(its_spans)) for rows in counts.pop(number)]
        index[kind, file] = indexed(file, texts.get(file.path, file.path), found)
        first += len(its_spans)
    return IndexedText(languages, tuple(_groups({n: Side(n, k, tuple(index[k, f] for f in s)) for n, (k, s) in sides.items()})))


def make_lister(_: None) -> Any:
    """Return a function that returns the spans of each of some files."""
    return lambda files: [
        spans(file, text) if languages is None else [Span(file, text, languages=languages)] for file, text, languages in files
    ]


def make_counter(_: None) -> Any:
    """Return the function that counts the rows of a span."""
    return count


def make_unpacker(context: WorkerContext) -> Any:
    """Return a function that decompresses one file to another."""
    return partial(_unpack, context)


def _unpack(context: WorkerContext, pair: tuple[Path, Path]) -> None:
    unpack(*pair, context)


def _texts(sides: dict[str, tuple[str, tuple[ExternalFile, ...]]], folder: Path, phases: Phases) -> dict[Path, Path]:
    """Return where the lines of each text file are. Compressed files are decompressed unless an earlier attempt has done so."""
    texts = {
        file.path: unpacked(file.path, folder, hashlib.sha256(f"{file.path}\n{file.digest}".encode()).hexdigest()[:16])
        for kind, side in sides.values()
        for file in side
        if kind != "parquet"
    }
    missing = [(path, text) for path, text in texts.items() if path != text and not text.exists()]
    quick = len(missing) <= MAX_QUICK_FILES and sum(_size(path) for path, _ in missing) <= QUICK_BYTES
    for _ in phases.map(make_unpacker, phases.context.for_workers(), missing, quick=quick):
        pass
    return texts


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 if it cannot be read, which is reported where it is opened."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sides(files: TextFiles) -> dict[str, tuple[str, tuple[ExternalFile, ...]]]:
    """Return the kind and the files of each side of a text by name."""
    given = [name for name in ("source", "tsv", "parquet") if getattr(files, name)]
    if len(given) != 1 or bool(files.source) != bool(files.target):
        raise DataError(
            f"corpus files: expected source and target, or tsv, or parquet, got {', '.join(given) or 'no files'}; "
            "give the files in one of these ways"
        )
    sides = {"source": ("lines", files.source), "target": ("lines", files.target)} if files.source else {}
    if not files.source:
        sides[given[0]] = (given[0], files.tsv or files.parquet)
    return sides | {f"reference {number}": ("lines", side) for number, side in enumerate(files.references, 2)}


def _groups(sides: dict[str, Side]) -> Iterator[tuple[Side, ...]]:
    """Yield groups of files that correspond row by row.

    If all sides have the same number of files, corresponding files must have the same number of lines; otherwise the totals must
    agree. Raises DataError.
    """
    numbers = {len(side.files) for side in sides.values()}
    slices = [slice(i, i + 1) for i in range(numbers.pop())] if len(numbers) == 1 else [slice(None)]
    for part in slices:
        group = tuple(Side(side.name, side.kind, side.files[part]) for side in sides.values())
        if len({side.rows for side in group}) > 1:
            raise _unequal(group)
        yield group


def _unequal(group: Iterable[Side]) -> DataError:
    totals = ", ".join(f"{side.name} {side.rows}" for side in group)
    lines = "; ".join(f"{side.name}: {file.rows} lines in {file.file.path}" for side in group for file in side.files)
    return DataError(
        f"corpus files: expected the same number of lines on all sides, got {totals} ({lines}); align the files line by line"
    )


def _columns(file: IndexedFile, lines: pa.StringArray, start: int) -> pa.Table:
    """Cut lines, of which the first has `start` lines before it, into their two columns."""
    tabs = pc.count_substring(lines, "\t").to_numpy()
    if (wrong := np.flatnonzero(tabs != 1)).size:
        raise DataError(
            f"{file.file.path}, line {start + int(wrong[0]) + 1}: expected two columns, source<TAB>target, "
            f"got {int(tabs[wrong[0]]) + 1}; remove or repair the line"
        )
    columns = pc.split_pattern(lines, "\t").flatten()
    return pa.table({"source": columns[::2], "target": columns[1::2]})


def _stream(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return rechunk(within_batches(tables, BATCH_ROWS), BATCH_ROWS)


def _side_by_side(group: tuple[Side, ...], rows: Iterable[tuple[pa.Table | None, ...]], expected: int) -> Iterator[pa.Table]:
    """Join tables of the sides. Raises DataError unless each side has the rows that its index promised."""
    found = 0
    for tables in rows:
        sizes = {0 if table is None else table.num_rows for table in tables}
        found += max(sizes)
        if len(sizes) > 1 or found > expected:
            raise _changed(group)
        columns: dict[str, Any] = {}
        for table in tables:
            columns.update(zip(table.column_names, table.columns, strict=True) if table else {})
        yield pa.table(columns)
    if found != expected:
        raise _changed(group)


def _changed(group: tuple[Side, ...]) -> DataError:
    names = ", ".join(str(file.file.path) for side in group for file in side.files)
    return DataError(f"{names}: expected the lines that were counted before, got others; the files were changed: run again")
