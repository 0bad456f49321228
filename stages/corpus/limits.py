"""Limits on text files, so that memory and time stay bounded whatever a file holds."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fewstep.streams import MAX_LINE_BYTES
from stages.errors import DataError
from stages.shared.expansion import most_text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAX_BATCH_BYTES = 1 << 30
"""Bytes of the rows of one side that are processed together."""
MAX_ROW_GROUP_BYTES = 2 << 30
"""Bytes of a text column in one row group of a Parquet file."""


def require_regular(path: Path) -> None:
    """Raise DataError if a file exists that is not a regular file. A pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # reported where the file is opened
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(f"{path}: expected a readable text file, got a pipe, socket or device; write its content to a file")


def check_line(path: Path, number: int, size: int) -> None:
    """Raise DataError if the line `number` of a file is too long, of which `size` bytes have been read."""
    if size > MAX_LINE_BYTES:
        raise DataError(
            f"{path}, line {number}: expected at most {MAX_LINE_BYTES:,} bytes, got a longer line; split or remove the line"
        )


def within_batches(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the tables of a stream, whose rows are processed `rows` at a time. Raises DataError if one such batch exceeds
    `MAX_BATCH_BYTES`."""
    held = size = 0
    for table in tables:
        held += table.num_rows
        size += table.nbytes
        if size > MAX_BATCH_BYTES:
            raise DataError(
                f"corpus files, column {table.column_names[0]}: expected at most {MAX_BATCH_BYTES:,} bytes in {rows:,} consecutive "
                "lines, got more; split long lines"
            )
        yield table
        if held >= rows:
            held %= rows
            size = table.nbytes if held else 0


def check_row_groups(path: Path, metadata: pq.FileMetaData, names: Sequence[str]) -> None:
    """Raise DataError if the columns `names` of a Parquet file hold far more than its size can, or a row group is too large."""
    chosen = [column for column in range(metadata.num_columns) if metadata.schema.column(column).path in names]
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    sizes = [group.column(column).total_uncompressed_size for group in groups for column in chosen]
    limit = most_text(path)
    rows = sum(group.num_rows for group in groups)
    if sum(sizes) > limit or max(sizes, default=0) > MAX_ROW_GROUP_BYTES:
        raise DataError(
            f"{path}: expected at most {limit:,} bytes of text and {MAX_ROW_GROUP_BYTES:,} in a column of a row group, got "
            f"{sum(sizes):,} and {max(sizes):,}; replace the file, or write it with smaller row groups"
        )
    if rows > limit or any(group.num_rows < 0 for group in groups):
        raise DataError(f"{path}: expected at most {limit:,} rows in a file of its size, got {rows:,}; replace the file")
