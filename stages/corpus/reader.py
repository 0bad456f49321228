"""Read parallel text as a stream of tables: lines (plain, gzip or zstd), tab-separated columns, or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import ExternalFile
from stages.corpus import TextFiles
from stages.corpus.limits import within_batches
from stages.corpus.lines import read_lines
from stages.corpus.parquet import read_parquet
from stages.errors import DataError
from stages.shards import rechunk

BATCH_ROWS = 16384

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
        """Yield all rows of a text, in tables of at most `BATCH_ROWS` rows: those of source and target, of tsv, and of parquet."""
        formats = [name for name in ("source", "tsv", "parquet") if getattr(files, name)]
        if not formats or bool(files.source) != bool(files.target) or (files.references and len(formats) > 1):
            raise DataError(
                "corpus files: expected source and target, tsv or parquet, and references beside one of them alone, got "
                f"{', '.join(formats) or 'none of them'}; correct the files of the text"
            )
        references: dict[str, tuple[Side, Read]] = {
            f"reference {number}": (side, self._lines) for number, side in enumerate(files.references, 2)
        }
        sides: dict[str, tuple[Side, Read]] = {"source": (files.source, self._lines), "target": (files.target, self._lines)}
        for given in (sides if files.source else {}, {"tsv": (files.tsv, self._tsv)}, {"parquet": (files.parquet, self._parquet)}):
            if any(side for side, _ in given.values()):
                yield from self._joined(given | references)

    def _joined(self, sides: Mapping[str, tuple[Side, Read]]) -> Iterator[pa.Table]:
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
        for lines in read_lines(file.path, file.member):
            total += len(lines)
            yield pa.table({side: lines})
        self.counts.append(Count(side, file, total))

    def _tsv(self, side: str, file: ExternalFile) -> Iterator[pa.Table]:
        total = 0
        for lines in read_lines(file.path, file.member):
            yield _columns(lines, file, total)
            total += len(lines)
        self.counts.append(Count(side, file, total))

    def _parquet(self, side: str, file: ExternalFile) -> Iterator[pa.Table]:
        total = 0
        for table in read_parquet(file.path, (self.source_language, self.target_language), file.columns):
            total += table.num_rows
            yield table
        self.counts.append(Count(side, file, total))


def _columns(lines: pa.StringArray, file: ExternalFile, start: int) -> pa.Table:
    """Split lines at tabs into source and target. `start` lines of the file precede them.

    Without `file.columns`, lines of two columns are expected. With them, lines may have more, and blank lines are empty pairs.
    """
    tabs = pc.count_substring(lines, "\t").to_numpy()
    source, target = (int(column) - 1 for column in file.columns or (1, 2))
    last = max(source, target)
    wrong = tabs != last
    if file.columns:
        blank = pc.equal(pc.utf8_trim_whitespace(lines), "")
        lines = pc.if_else(blank, "\t" * last, lines)
        wrong = (tabs < last) & ~blank.to_numpy(zero_copy_only=False)
    if (at := np.flatnonzero(wrong)).size:
        expected = f"at least {last + 1} columns" if file.columns else "two columns, source<TAB>target"
        raise DataError(
            f"{file.path / file.member}, line {start + int(at[0]) + 1}: expected {expected}, got {int(tabs[at[0]]) + 1}; remove or "
            "repair the line"
        )
    cells = pc.split_pattern(lines, "\t")
    return pa.table({"source": pc.list_element(cells, source), "target": pc.list_element(cells, target)})


def _stream(name: str, side: Side, read: Read) -> Iterator[pa.Table]:
    return rechunk(within_batches((table for file in side for table in read(name, file)), BATCH_ROWS), BATCH_ROWS)


def _side_by_side(tables: Iterable[pa.Table]) -> pa.Table:
    columns: dict[str, Any] = {}
    for table in tables:
        columns.update(zip(table.column_names, table.columns, strict=True))
    return pa.table(columns)


def _unequal(counts: list[Count]) -> DataError:
    lines = [f"{count.side}: {count.lines} lines in {count.file.path / count.file.member}" for count in counts]
    sums = {
        side: sum(count.lines for count in counts if count.side == side) for side in dict.fromkeys(count.side for count in counts)
    }
    totals = ", ".join(f"{side} {total}" for side, total in sums.items())
    return DataError(
        f"corpus files: expected the same number of lines on all sides, got {totals} ({'; '.join(lines)}); align the files line "
        "by line"
    )
