"""The last phase: write the pairs that are left as numbered shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.corpus.clean import ROW, CleanPiece, excluded_keys
from stages.corpus.duplicates import Found, RepetitionSearch
from stages.corpus.filters import overlap
from stages.corpus.job import Job
from stages.corpus.ledger import sample
from stages.errors import StageError
from stages.shared.shards import read_shard, rechunk, shard_path, write_shard


@dataclass(frozen=True)
class Layout:
    """Where the pairs of each piece go."""

    positions: npt.NDArray[np.int64]
    """Pairs in earlier pieces, repetitions included [pieces + 1]."""
    kept: npt.NDArray[np.int64]
    """Pairs in earlier pieces, repetitions left out [pieces + 1]."""
    searches: tuple[RepetitionSearch, ...]
    """The searches whose repetitions are left out."""
    shard_rows: int

    @staticmethod
    def of(pairs: Sequence[int], found: Sequence[tuple[RepetitionSearch, Found]], shard_rows: int) -> Layout:
        left = np.array(pairs, np.int64) - sum(one.by_piece for _, one in found)
        positions, kept = (np.cumsum([0, *numbers]).astype(np.int64) for numbers in (pairs, left))
        return Layout(positions, kept, tuple(search for search, _ in found), shard_rows)

    @property
    def rows(self) -> int:
        return int(self.kept[-1])

    @property
    def shards(self) -> int:
        return -(-self.rows // self.shard_rows)

    def shards_of(self, piece: int) -> range:
        """Return the shards that begin in a piece."""
        first, end = (-(-int(self.kept[at]) // self.shard_rows) for at in (piece, piece + 1))
        return range(first, end)


def make_writer(argument: tuple[Job, Layout]) -> Callable[[int], int]:
    """Return a function that writes the shards that begin in a piece, unless an earlier attempt has done so; it returns the piece.

    Written shards are read again. It raises StageError unless they hold their rows and no side is in an excluded text.
    """
    job, layout = argument
    return partial(_write, job, layout, excluded_keys(job.inputs.exclude))


def _write(job: Job, layout: Layout, excluded: pa.StringArray, piece: int) -> int:
    done = job.file("written", piece)
    if not done.exists():
        shards = layout.shards_of(piece)
        start = shards.start * layout.shard_rows
        tables = rechunk(_numbered(job, layout, piece, start, shards.stop * layout.shard_rows), layout.shard_rows)
        for shard, table in zip(shards, tables, strict=True):
            write_shard(shard_path(job.context.directory, shard), table, job.context)
            _check(job, shard, table.num_rows, excluded)
        job.write(done, lambda path: path.touch())
    return piece


def _numbered(job: Job, layout: Layout, piece: int, start: int, stop: int) -> Iterator[pa.Table]:
    """Yield the kept pairs `start` to `stop` of the text, which begin in a piece, with their ids."""
    for number in range(piece, len(layout.kept) - 1):
        row = int(layout.kept[number])
        if row >= stop:
            return
        for table in _without_duplicates(job, layout, number):
            begin = max(start - row, 0)
            end = min(stop - row, table.num_rows)
            if begin < end:
                ids = pa.array(range(row + begin, row + end), pa.int64())
                yield table.slice(begin, end - begin).drop_columns(ROW).add_column(0, "id", ids)
            row += table.num_rows


def _without_duplicates(job: Job, layout: Layout, piece: int) -> Iterator[pa.Table]:
    position = int(layout.positions[piece])
    dropped = np.concatenate([np.empty(0, np.int64), *(search.in_piece(piece).astype(np.int64) for search in layout.searches)])
    for table in _batches(job, piece):
        kept = np.ones(table.num_rows, bool)
        inside = dropped[(dropped >= position) & (dropped < position + table.num_rows)]
        kept[(inside - position).astype(np.int64)] = False
        yield table.filter(pa.array(kept))
        position += table.num_rows


def _batches(job: Job, piece: int) -> Iterator[pa.Table]:
    with pa.OSFile(str(CleanPiece.of(job, piece).rows)) as file:
        reader = pa.ipc.open_file(file)
        for batch in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(batch)])


def _check(job: Job, shard: int, rows: int, excluded: pa.StringArray) -> None:
    table = read_shard(shard_path(job.context.directory, shard))
    where = job.context.directory
    if table.num_rows != rows:
        raise StageError(f"{where}: expected {rows} rows in shard {shard}, got {table.num_rows}; run again")
    for side in ("source", "target"):
        if overlap(table[side].combine_chunks(), excluded).any():
            raise StageError(f"{where}: expected no sentence of a validation or test text in the {side} side, got some; run again")


def samples_at(job: Job, layout: Layout, positions: npt.NDArray[np.uint64]) -> list[dict[str, object]]:
    """Return the entries in the ledger of the pairs at ascending positions."""
    found = []
    for position in positions.astype(np.int64).tolist():
        piece = int(np.searchsorted(layout.positions, position, "right")) - 1
        row = position - int(layout.positions[piece])
        for table in _batches(job, piece):
            if row < table.num_rows:
                found.append(sample(*table.select([ROW, "source", "target"]).slice(row, 1).to_pylist()[0].values()))
                break
            row -= table.num_rows
    return found
