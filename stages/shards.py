"""Shards: Arrow IPC files `shards/00000.arrow, ...` with a fixed number of rows in input order, memory-mapped when read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernels import durable
from stages.errors import ArtifactError, unwritable

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.context import Context


def shard_path(directory: Path, index: int) -> Path:
    """Where shard `index` of the artifact (or `.partial`) directory lies."""
    return directory / "shards" / f"{index:05d}.arrow"


def shard_paths(directory: Path) -> list[Path]:
    """The shards of an artifact directory, in order. Raises ArtifactError when the numbers have a gap."""
    paths = sorted((directory / "shards").glob("*.arrow"), key=lambda path: (len(path.name), path.name))
    for index, path in enumerate(paths):
        if path != (expected := shard_path(directory, index)):
            raise ArtifactError(f"{directory}: expected shard {expected.name}, got {path.name}; one is missing: run the step again")
    return paths


def read_shard(path: Path) -> pa.Table:
    """One shard as a table of one record batch, memory-mapped (nothing is read until a value is looked at).

    Raises ArtifactError for a file that is missing, cut off or no Arrow file.
    """
    import pyarrow as pa

    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: expected a whole Arrow IPC file, got: {error}; remove its artifact and run again") from error


def read_shards(directory: Path) -> Iterator[pa.Table]:
    """The shards of an artifact directory one after the other, each memory-mapped."""
    return map(read_shard, shard_paths(directory))


def rows_of(path: Path) -> int:
    """Rows of a shard, from its footer and batch headers."""
    return int(read_shard(path).num_rows)


def row_counts(directory: Path) -> list[int]:
    """Rows of each shard of an artifact directory, in order."""
    return [rows_of(path) for path in shard_paths(directory)]


def write_shard(path: Path, table: pa.Table, context: Context) -> None:
    """Write a table as one shard, whole or not at all. Equal tables give equal bytes, however they are chunked.

    Raises StageError when the file cannot be written (a full disk).
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
    """A table as one record batch of its own memory: a slice would be written with the text that stands behind it."""
    import pyarrow as pa

    columns = [pa.concat_arrays([*column.chunks, pa.array([], column.type)]) for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def rechunk(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Cut a stream of tables of one schema anew: `rows` rows each, fewer in the last, none empty."""
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
        held, count = [joined.slice(whole)], count - whole
    if count:
        yield pa.concat_tables(held)


def write_shards(tables: Iterable[pa.Table], directory: Path, shard_rows: int, context: Context) -> list[int]:
    """Write a stream of tables of one schema as shards of `shard_rows` rows; the rows of each shard.

    Shards beyond the last, left behind by an earlier attempt, are removed. Memory holds one shard and one table of the stream.
    """
    counts: list[int] = []
    for index, table in enumerate(rechunk(tables, shard_rows)):
        write_shard(shard_path(directory, index), table, context)
        counts.append(table.num_rows)
    drop_shards_from(directory, len(counts))
    return counts


def drop_shards_from(directory: Path, index: int) -> None:
    """Remove shards `index`, `index + 1`, ... that an earlier attempt left behind."""
    for path in sorted((directory / "shards").glob("*.arrow")):
        if int(path.stem) >= index:
            path.unlink()
