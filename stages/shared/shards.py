"""Shards: Arrow IPC files `shards/00000.arrow`, ... with a fixed number of rows in input order.

A shard is read whole and validated in full: it may come from elsewhere, with a manifest that agrees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import durable
from stages.artifacts import SHARDS
from stages.errors import ArtifactError, unwritable

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.context import Context


def shard_path(directory: Path, index: int) -> Path:
    """Return the path of shard `index` in the directory of an artifact (or `.partial` directory)."""
    return directory / SHARDS / f"{index:05d}.arrow"


def shard_paths(directory: Path) -> list[Path]:
    """Return the shards in the directory of an artifact, in order. Raises ArtifactError when a number is missing."""
    paths = sorted((directory / SHARDS).glob("*.arrow"), key=lambda path: (len(path.name), path.name))
    for index, path in enumerate(paths):
        if path != (expected := shard_path(directory, index)):
            raise ArtifactError(
                f"{directory}: expected shard {expected.name}, got {path.name}; a shard is missing: run the step again"
            )
    return paths


def read_shard(path: Path) -> pa.Table:
    """Return a shard as a table in memory, validated in full: offsets, lengths and text are those of a table.

    Raises ArtifactError for a file that is missing, truncated, damaged or not an Arrow file.
    """
    import pyarrow as pa

    with _explained(path), pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        return table


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the errors of pyarrow into an ArtifactError."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, MemoryError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: expected a whole Arrow IPC file, got: {error}; remove its artifact and run again") from error


def read_shards(directory: Path) -> Iterator[pa.Table]:
    """Yield the shards in the directory of an artifact, each in memory while it is used."""
    return map(read_shard, shard_paths(directory))


def rows_of(path: Path) -> int:
    """Return the number of rows of a shard, from its footer and batch headers. Raises ArtifactError as `read_shard` does."""
    import pyarrow as pa

    with _explained(path), pa.memory_map(str(path)) as file:
        return int(pa.ipc.open_file(file).read_all().num_rows)


def row_counts(directory: Path) -> list[int]:
    """Return the number of rows of each shard in the directory of an artifact, in order."""
    return [rows_of(path) for path in shard_paths(directory)]


def write_shard(path: Path, table: pa.Table, context: Context) -> None:
    """Write a table as one shard, atomically. Equal tables give equal bytes, whatever their chunks.

    Raises StageError when the file cannot be written, as on a full disk.
    """
    import pyarrow as pa

    temporary = context.temporary(path)
    try:
        durable.make_directory(path.parent)
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_batch(_compact(table))
        durable.rename(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def _compact(table: pa.Table) -> pa.RecordBatch:
    """A table as one record batch in memory of its own. (A slice would be written together with the rest of its buffers.)"""
    import pyarrow as pa

    columns = [pa.concat_arrays([*column.chunks, pa.array([], column.type)]) for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def rechunk(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Rechunk a stream of tables of one schema into tables of `rows` rows; the last may have fewer, but is not empty."""
    import pyarrow as pa

    held: list[pa.Table] = []
    count = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        if count < rows:
            continue
        joined = pa.concat_tables(held)
        whole = count - count % rows
        for start in range(0, whole, rows):
            yield joined.slice(start, rows)
        held = [joined.slice(whole)]
        count -= whole
    if count:
        yield pa.concat_tables(held)


def write_shards(tables: Iterable[pa.Table], directory: Path, shard_rows: int, context: Context) -> list[int]:
    """Write a stream of tables of one schema as shards of `shard_rows` rows, and return the number of rows of each.

    Later shards from an earlier attempt are removed. Memory holds one shard and one table of the stream at a time.
    """
    counts: list[int] = []
    for index, table in enumerate(rechunk(tables, shard_rows)):
        write_shard(shard_path(directory, index), table, context)
        counts.append(table.num_rows)
    drop_shards_from(directory, len(counts))
    return counts


def drop_shards_from(directory: Path, index: int) -> None:
    """Remove shards `index`, `index + 1`, ... of an earlier attempt."""
    for path in sorted((directory / SHARDS).glob("*.arrow")):
        if int(path.stem) >= index:
            path.unlink()
