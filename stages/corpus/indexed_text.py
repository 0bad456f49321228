"""Parallel text in files of any format (`stages.corpus.readers`), which is read by ranges of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.artifacts import ExternalFile
from stages.context import WorkerContext
from stages.corpus import CorpusConfig, TextFiles
from stages.corpus.limits import within_batches
from stages.corpus.readers import READERS
from stages.corpus.readers.reader import IndexedFile
from stages.errors import DataError
from stages.shared.embedded import LANGUAGES, documents, pairs
from stages.shared.phases import Phases
from stages.shared.shards import rechunk

BATCH_ROWS = 16384

QUICK_BYTES = 32 << 20
"""Size of all files together that are decompressed or counted sooner than workers are ready."""
MAX_QUICK_FILES = 20
"""Number of files that are decompressed or counted sooner than workers are ready."""


FileSide = tuple[str, str, tuple[ExternalFile, ...]]
"""The name, format and files of a side."""


@dataclass(frozen=True)
class Side:
    """One column of a text, or both for a format of pairs: files that are concatenated in order."""

    name: str
    format: str
    files: tuple[IndexedFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def read(self, start: int, stop: int, languages: tuple[str, str]) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop`."""
        before = 0
        for file in self.files:
            begin = max(start - before, 0)
            end = min(stop - before, file.rows)
            before += file.rows
            if begin < end:
                yield from READERS[self.format].read(file, begin, end, self.name, languages)


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
            begin = max(start - before, 0)
            end = min(stop - before, group[0].rows)
            before += group[0].rows
            if begin < end:
                streams = [_stream(side.read(begin, end, self.languages)) for side in group]
                yield from _side_by_side(group, zip_longest(*streams), end - begin)

    def place(self, row: int) -> tuple[int, int]:
        """Return the file of a row, as its number in `counts` from 1, and the line of the file at which the row begins."""
        for side, file in ((group[0], file) for group in self.groups for file in group[0].files):
            if row < file.rows:
                number = next(number for number, (name, one) in enumerate(self.counts(), 1) if one is file and name == side.name)
                return number, READERS[side.format].line(file, row)
            row -= file.rows
        raise IndexError(f"expected a row of {self.rows}, got one {row} rows behind the last")

    def counts(self) -> Iterator[tuple[str, IndexedFile]]:
        """Yield the side and index of each file, in the order in which files end when the text is read in tables of `BATCH_ROWS`
        rows."""
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
    formats = _formats(files)
    sides = [side for given in formats for side in given]
    texts = _texts(sides, languages, folder, phases)
    entries = list(dict.fromkeys((kind, file) for _, kind, side in sides for file in side))
    wanted = [(kind, file, texts.get((kind, file), file.path), languages) for kind, file in entries]
    ((_, parts),) = phases.map(make_lister, None, [wanted])
    every = [span for its_spans in parts for span in its_spans]
    quick = sum(span.stop - span.start for span in every) <= QUICK_BYTES and len(every) <= MAX_QUICK_FILES
    counts: dict[int, list[int]] = dict(phases.map(make_counter, None, every, quick=quick))
    index = dict[tuple[str, ExternalFile], IndexedFile]()
    first = 0
    for (kind, file), its_spans in zip(entries, parts, strict=True):
        found = [rows for number in range(first, first + len(its_spans)) for rows in counts.pop(number)]
        index[kind, file] = IndexedFile.of(file, texts.get((kind, file), file.path), found)
        first += len(its_spans)
    groups: list[tuple[Side, ...]] = []
    for given in formats:
        groups += _groups([Side(name, kind, tuple(index[kind, file] for file in side)) for name, kind, side in given])
    return IndexedText(languages, tuple(groups))


def count_rows(files: TextFiles, languages: tuple[str, str]) -> int:
    """Return the number of pairs of a text, as its first sides have them. Raises DataError for a file that cannot be read."""
    return sum(READERS[kind].rows(file, languages) for (_, kind, side), *_ in _formats(files) for file in side)


def make_lister(_: None) -> Any:
    """Return a function that returns the spans of each of some files."""
    return lambda files: [READERS[kind].spans(file, text, languages) for kind, file, text, languages in files]


def make_counter(_: None) -> Any:
    """Return the function that counts the rows of a span."""
    return lambda span: READERS[span.format].count(span)


def make_unpacker(context: WorkerContext) -> Any:
    """Return a function that decompresses one file to another."""
    return partial(_unpack, context)


def _unpack(context: WorkerContext, packed: tuple[str, ExternalFile, Path, tuple[str, str]]) -> None:
    kind, file, text, languages = packed
    READERS[kind].unpack(file, text, languages, context)


def _texts(
    sides: Iterable[FileSide], languages: tuple[str, str], folder: Path, phases: Phases
) -> dict[tuple[str, ExternalFile], Path]:
    """Return the copies of packed files, which are unpacked unless an earlier attempt has done so."""
    texts = {
        (kind, file): folder / f"{hashlib.sha256(repr((kind, file, languages)).encode()).hexdigest()[:16]}.txt"
        for _, kind, files in sides
        for file in files
        if READERS[kind].packed(file)
    }
    missing = [(kind, file, text, languages) for (kind, file), text in texts.items() if not text.exists()]
    quick = len(missing) <= MAX_QUICK_FILES and sum(_size(file.path) for _, file, *_ in missing) <= QUICK_BYTES
    for _ in phases.map(make_unpacker, phases.context.for_workers(), missing, quick=quick):
        pass
    return texts


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 if it cannot be read, which is reported where it is opened."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _formats(files: TextFiles) -> list[list[FileSide]]:
    """Return the sides of each format that a text has: those of source and target, and of each format of pairs."""
    pairs = {name: getattr(files, name) for name in READERS if name != "lines"}
    given: dict[str, list[FileSide]] = {name: [(name, name, side)] for name, side in pairs.items() if side}
    if files.source:
        given = {"source": [("source", "lines", files.source), ("target", "lines", files.target)], **given}
    if not given or bool(files.source) != bool(files.target) or (files.references and len(given) > 1):
        raise DataError(
            f"corpus files: expected source and target, {' or '.join(pairs)}, and references with only one of these formats, got "
            f"{', '.join(given) or 'none of them'}; correct the files of the text"
        )
    references: list[FileSide] = [(f"reference {number}", "lines", side) for number, side in enumerate(files.references, 2)]
    return [sides + references for sides in given.values()]


def _groups(sides: Sequence[Side]) -> Iterator[tuple[Side, ...]]:
    """Yield groups of files that correspond row by row.

    If all sides have the same number of files, corresponding files must have the same number of lines; otherwise the totals must
    agree. Raises DataError.
    """
    numbers = {len(side.files) for side in sides}
    slices = [slice(i, i + 1) for i in range(numbers.pop())] if len(numbers) == 1 else [slice(None)]
    for part in slices:
        group = tuple(Side(side.name, side.format, side.files[part]) for side in sides)
        if len({side.rows for side in group}) > 1:
            raise _unequal(group)
        yield group


def _unequal(group: Iterable[Side]) -> DataError:
    totals = ", ".join(f"{side.name} {side.rows}" for side in group)
    lines = "; ".join(f"{side.name}: {file.rows} lines in {file.shown}" for side in group for file in side.files)
    return DataError(
        f"corpus files: expected the same number of lines on all sides, got {totals} ({lines}); align the files line by line"
    )


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
    names = ", ".join(str(file.shown) for side in group for file in side.files)
    return DataError(f"{names}: expected the lines that were counted before, got others; the files were changed: run again")


@dataclass(frozen=True)
class EmbeddedText:
    """The first `config.embedded` pairs of a part of the embedded corpus. See `stages.corpus.indexed_text.IndexedText`."""

    config: CorpusConfig

    @staticmethod
    def of(config: CorpusConfig) -> EmbeddedText:
        """Return the text of a config. Raises DataError for languages that it does not have."""
        languages = config.languages
        expected = LANGUAGES[config.task]
        if sorted(languages) != sorted(expected):
            raise DataError(
                f"the embedded corpus: expected languages {expected[0]} and {expected[1]}, got {languages[0]} and {languages[1]}; "
                "use files for other languages"
            )
        return EmbeddedText(config)

    @property
    def rows(self) -> int:
        return self.config.embedded

    def batches(self) -> Iterator[int]:
        """Yield the numbers of rows of the tables in which the whole text is read."""
        for start in range(0, self.rows, BATCH_ROWS):
            yield min(BATCH_ROWS, self.rows - start)

    def read(self, start: int, stop: int) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop` in order, in tables of at most `BATCH_ROWS` rows."""
        stream = (pairs if self.config.task == "translation" else documents)(self.config.part, start, stop - start)
        forth = self.config.source_language == LANGUAGES[self.config.task][0]
        while batch := list(islice(stream, BATCH_ROWS)):
            first, second = zip(*batch, strict=True)
            sides = (first, second) if forth else (second, first)
            yield pa.table([pa.array(side, pa.string()) for side in sides], ["source", "target"])

    def place(self, row: int) -> None:
        """Return None, since the text has no files."""

    def counts(self) -> Iterator[tuple[str, IndexedFile]]:
        """Yield nothing, since the text has no files."""
        return iter(())
