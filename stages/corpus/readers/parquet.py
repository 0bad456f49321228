"""Parallel text in Parquet files, as a stream of tables whose memory is bounded whatever the file holds.

The index of a Parquet file is the number of rows before each row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fewstep.documents.document import Languages
from stages.artifacts import ExternalFile
from stages.context import Context
from stages.corpus.limits import check_line, check_row_groups, require_regular
from stages.corpus.lines import readable
from stages.corpus.readers.parquet_check import row_groups
from stages.corpus.readers.reader import IndexedFile, Span
from stages.errors import DataError
from stages.shared.expansion import most_text

BATCH_ROWS = 4096
MAX_SHOWN = 80
"""Characters of a name or a type that an error shows."""
MAX_COLUMNS = 20
"""Columns that an error shows."""
PART_BYTES = 64 << 20
"""Bytes of the texts of one table, beside its last row."""


class Parquet:
    """Parquet files with a column of strings for each side."""

    def packed(self, file: ExternalFile) -> bool:
        """Return False: row groups are read from anywhere."""
        return False

    def spans(self, file: ExternalFile, text: Path, languages: Languages) -> list[Span]:
        """Return the whole file, whose counts are in its metadata."""
        return [Span("parquet", file, text, languages)]

    def count(self, span: Span) -> list[int]:
        """Return the number of rows of each row group, after the file was read whole. Raises DataError as `read_parquet` does."""
        return row_groups(span.file.path, span.languages, span.file.columns)

    def unpack(self, file: ExternalFile, target: Path, languages: Languages, context: Context) -> None:
        """Raise an error, since no file is packed."""
        raise NotImplementedError("Parquet files are read as they are, and never unpacked")

    def line(self, file: IndexedFile, row: int) -> int:
        """Return the number of a row, from 1."""
        return row + 1

    def rows(self, file: ExternalFile, languages: Languages | None) -> int:
        """Return the number of rows that the metadata states."""
        return sum(row_groups(file.path, ("", ""), file.columns, whole=False))

    def read(self, file: IndexedFile, start: int, stop: int, side: str, languages: Languages) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop`, as `read_parquet` does."""
        first = int(np.searchsorted(file.starts, start, "right")) - 1
        last = int(np.searchsorted(file.starts, stop, "left"))
        row = int(file.starts[first])
        for table in read_parquet(file.file.path, languages, file.file.columns, range(first, last), row):
            begin = max(start - row, 0)
            end = min(stop - row, table.num_rows)
            row += table.num_rows
            if begin < end:
                yield table.slice(begin, end - begin)


def checked_groups(path: Path, languages: tuple[str, str], columns: Sequence[str | int], *, whole: bool) -> list[int]:
    """Return the number of rows of each row group. `whole`: read them all. Raises DataError as `read_parquet` does."""
    with readable(path):
        opened = _open(path, languages, columns) if whole else None
        metadata = opened[0].metadata if opened else pq.read_metadata(path)
        groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    first = size = 0
    limit = most_text(path)
    if opened is None:
        return groups
    for number, rows in enumerate(groups):
        found = 0
        for table in _tables(*opened, path, range(number, number + 1), first):
            found += table.num_rows
            size += table.nbytes
            if size > limit:
                raise DataError(
                    f"{path}: expected at most {limit:,} bytes of text from a file of {path.stat().st_size:,} bytes, got more, "
                    "which its dictionaries repeat; replace the file"
                )
        if found != rows:
            raise DataError(f"{path}, row group {number}: expected {rows} rows, got {found}; replace the file")
        first += rows
    return groups


def read_parquet(
    path: Path, languages: tuple[str, str], columns: Sequence[str | int], groups: range, row: int
) -> Iterator[pa.Table]:
    """Yield the rows of row groups in order, with the columns source and target. A missing value becomes an empty string.

    `columns` names the columns of the two sides, `translation.de` the field `de` of the column `translation`. `row` is the number
    of rows before these groups.

    Raises DataError for a file that cannot be read, without such columns of strings, with invalid UTF-8, or with long texts.
    """
    yield from _tables(*_open(path, languages, columns), path, groups, row)


def _tables(parquet: pq.ParquetFile, names: tuple[str, str], path: Path, groups: range, row: int) -> Iterator[pa.Table]:
    batches = parquet.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=list(names))
    while True:
        with readable(path):
            batch = next(batches, None)
        if batch is None:
            return
        for part in _parts(_flat(batch, names), path, names, row):
            sides = [_strings(part.column(name), path, name, row) for name in names]
            row += part.num_rows
            yield pa.table(sides, ["source", "target"])


def _open(path: Path, languages: tuple[str, str], columns: Sequence[str | int]) -> tuple[pq.ParquetFile, tuple[str, str]]:
    """Return a file and the names of its columns of source and target."""
    with readable(path):
        require_regular(path)
        schema = pq.read_schema(path)
        kinds = dict(_leaves(schema)) | {column.name: column.type for column in schema}
        names = _columns(path, schema, languages, columns)
        for name in names:
            if not _is_string(kind := kinds[name]):
                raise DataError(f"{path}, column {name}: expected strings, got {str(kind)[:MAX_SHOWN]}; convert the column")
        # A text that a dictionary holds once may stand in every row, so it is written out only after its rows were counted.
        parquet = pq.ParquetFile(path, read_dictionary=list(names))
        check_row_groups(path, parquet.metadata, names)
    return parquet, names


def _columns(path: Path, schema: pa.Schema, languages: tuple[str, str], stated: Sequence[str | int]) -> tuple[str, str]:
    kinds = dict(_leaves(schema))
    if stated:
        source, target = map(str, stated)
        if {source, target} <= kinds.keys():
            return source, target
        raise DataError(f"{path}: expected columns {source} and {target}, got {_shown(kinds)}; correct `columns`")
    for pair in (("source", "target"), languages):
        if set(pair) <= set(schema.names):
            return pair
    nested = [
        (f"{column.name}.{languages[0]}", f"{column.name}.{languages[1]}") for column in schema if pa.types.is_struct(column.type)
    ]
    if len(found := [pair for pair in nested if set(pair) <= kinds.keys()]) == 1:
        return found[0]
    strings = [column.name for column in schema if _is_string(column.type)]
    if len(strings) == 2:
        return strings[0], strings[1]
    raise DataError(
        f"{path}: expected columns source and target, or {languages[0]} and {languages[1]}, or exactly two "
        f"columns of strings, got {_shown(kinds)}; name them with `columns`, or rename the columns"
    )


def _leaves(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns with their types, and in place of structs their fields as `column.field`."""
    for column in schema:
        if pa.types.is_struct(column.type):
            yield from ((f"{column.name}.{field.name}", field.type) for field in column.type)
        else:
            yield column.name, column.type


def _shown(kinds: Mapping[str, pa.DataType]) -> str:
    shown = [f"{name[:MAX_SHOWN]} ({str(kind)[:MAX_SHOWN]})" for name, kind in islice(kinds.items(), MAX_COLUMNS)]
    return ", ".join(shown) + (", ..." if len(kinds) > MAX_COLUMNS else "") or "no columns"


def _flat(batch: pa.RecordBatch, names: tuple[str, str]) -> pa.RecordBatch:
    """Return a batch of the columns `names`, among them fields of structs."""
    columns = []
    for name in names:
        column, _, field = ("", "", name) if name in batch.schema.names else name.partition(".")
        columns.append(pc.struct_field(batch.column(column), field) if column else batch.column(field))
    return pa.RecordBatch.from_arrays(columns, list(names))


def _parts(batch: pa.RecordBatch, path: Path, names: tuple[str, str], row: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch, which starts at `row`, into parts of about `PART_BYTES`. Raises DataError for a text that is too long."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        lengths = _lengths(batch.column(name))
        if lengths.size:
            longest = int(lengths.argmax())
            check_line(path, row + longest + 1, int(lengths[longest]))
        sizes += lengths
    ends = np.flatnonzero(np.diff(np.cumsum(sizes) // PART_BYTES)) + 1
    for start, end in zip([0, *ends], [*ends, batch.num_rows], strict=True):
        yield batch.slice(start, end - start)


def _lengths(column: pa.Array) -> np.ndarray:
    """Return the bytes of each text; 0 for other values, which are refused later."""
    if not _is_string(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_dictionary(column.type):
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
    else:
        lengths = pc.binary_length(column)
    return np.asarray(pc.fill_null(lengths, 0), np.int64)


def _is_string(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _strings(column: pa.Array, path: Path, name: str, start: int) -> pa.StringArray:
    """Return a column as valid strings; a missing value becomes an empty string. `start` is the number of its first row."""
    if not _is_string(column.type):
        raise DataError(f"{path}, column {name}: expected strings, got {column.type}; convert the column")
    strings = pc.fill_null(column.cast(pa.string()), "")
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        # Row by row only now, to name the row.
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
