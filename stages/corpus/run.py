"""Run the corpus stage. Its last phase writes the pairs that are left as numbered shards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.context import StepContext
from stages.corpus import CorpusConfig, CorpusInputs
from stages.corpus.clean import ROW, CleanPiece, excluded_keys, make_cleaner, make_measurer
from stages.corpus.duplicates import Found, RepetitionSearch, make_counter, make_finder, searches
from stages.corpus.filters import overlap, sampled_rows
from stages.corpus.job import PIECE_ROWS, Job, open_job
from stages.corpus.ledger import Ledger, sample
from stages.errors import DataError, StageError
from stages.shared.phases import Phases
from stages.shared.shards import drop_shards_from, read_shard, rechunk, shard_path, shard_paths, write_shard


def run(inputs: CorpusInputs, config: CorpusConfig, context: StepContext, piece_rows: int = PIECE_ROWS) -> None:
    """Write the text of `inputs.files`, or of the embedded corpus, as shards. With filters, also write the ledger.

    Equal inputs and config give equal bytes for any number of workers and any size of pieces. Raises DataError for unusable files,
    a text without pairs, and an `exclude` text without sentences. Raises TransientError when the step was asked to stop; finished
    pieces are kept.
    """
    job = open_job(inputs, config, context, piece_rows)
    ratio = _usual_ratio(job, context) if config.filters else 1.0
    ledger, pairs = _clean(job, ratio, context)
    found = _find_repetitions(searches(job, pairs), context)
    layout = Layout.of(pairs, found, config.shard_rows)
    for search, repetitions in found:
        ledger.drop(search.kind, int(repetitions.by_piece.sum()))
        if len(repetitions.first):
            ledger.samples[search.kind] = samples_at(job, layout, repetitions.first)
    ledger.pairs_out = layout.rows
    _check_kept(job, ledger, ratio)
    _write(job, layout, context)
    _describe(job, layout, ledger, ratio, context)


def _usual_ratio(job: Job, context: StepContext) -> float:
    ((_, ratio),) = Phases(context).map(make_measurer, job, [sampled_rows(job.text.batches())])
    return ratio


def _clean(job: Job, ratio: float, context: StepContext) -> tuple[Ledger, list[int]]:
    """Filter all pieces; return the ledger of the text and the number of pairs that are left in each piece."""
    ledger = Ledger()
    pairs = [0] * job.pieces
    for piece, part in Phases(context).map(make_cleaner, (job, ratio), range(job.pieces)):
        pairs[piece] = part.pairs_out
        ledger.add(part)
        _report(job, ledger.pairs_in, context)
    return ledger, pairs


def _find_repetitions(searches: list[RepetitionSearch], context: StepContext) -> list[tuple[RepetitionSearch, Found]]:
    """Return the repetitions that each search finds. A pair is counted in the first of them."""
    found = []
    for number, search in enumerate(searches):
        repetitions = _sum(Phases(context).map(make_finder, search, range(search.partitions)), search)
        if search.kind == "similar":  # a pair may repeat several bands, and an equal pair repeats all
            repetitions = _sum(Phases(context).map(make_counter, searches[: number + 1], range(search.pieces)), search)
        found.append((search, repetitions))
    return found


def _sum(parts: Iterable[tuple[int, Found]], search: RepetitionSearch) -> Found:
    return sum((part for _, part in parts), Found.none(search.pieces))


def _write(job: Job, layout: Layout, context: StepContext) -> None:
    """Write all shards."""
    pieces = [piece for piece in range(job.pieces) if layout.shards_of(piece)]
    done = 0
    for _, piece in Phases(context).map(make_writer, (job, layout), pieces):
        done += len(layout.shards_of(piece)) * layout.shard_rows
        _report(job, job.text.rows * (1 + min(1.0, done / layout.rows)), context)
    drop_shards_from(context.directory, layout.shards)
    if (found := len(shard_paths(context.directory))) != layout.shards:
        raise StageError(f"{context.directory}: expected {layout.shards} shards, got {found}; run again")


def _report(job: Job, half_done: float, context: StepContext) -> None:
    """Record the progress: filtering a pair is half of the work on it, and writing it the other half."""
    context.progress(int(half_done) // 2, job.text.rows, "pairs")


def _check_kept(job: Job, ledger: Ledger, ratio: float) -> None:
    if not job.text.rows:
        names = ", ".join(str(file.shown) for _, file in job.text.counts())
        raise DataError(
            f"corpus: expected at least one pair of sentences, got an empty text: {names}; check the files in the config"
        )
    if not ledger.pairs_out:
        account = json.dumps(_account(ledger, ratio), ensure_ascii=False)
        raise DataError(
            f"corpus: expected pairs that pass the filters, got none of {ledger.pairs_in}; the ledger: {account}; relax the filters"
        )


def _describe(job: Job, layout: Layout, ledger: Ledger, ratio: float, context: StepContext) -> None:
    counts = list(job.text.counts())
    if job.config.filters or any(ledger.dropped.values()):
        files = [{"side": side, "digest": file.file.digest, "lines": file.rows} for side, file in counts]
        _add_places(job, ledger)
        context.write_json(context.directory / "ledger.json", _account(ledger, ratio) | {"files": files})
    context.write_json(
        context.records("files.json"), [{"side": side, "path": str(file.shown), "lines": file.rows} for side, file in counts]
    )
    text = {"rows": layout.rows, "shards": layout.shards, "shard_rows": layout.shard_rows}
    context.write_json(context.directory / "text.json", text)


def _add_places(job: Job, ledger: Ledger) -> None:
    """Add the file and the line to the samples of a ledger."""
    for dropped in (one for found in ledger.samples.values() for one in found):
        if place := job.text.place(int(dropped["pair"]) - 1):
            dropped |= {"file": place[0], "line": place[1]}


def _account(ledger: Ledger, ratio: float) -> dict[str, object]:
    return ledger.to_json() | {"usual_ratio": round(ratio, 4)}


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
    return partial(_write_piece, job, layout, excluded_keys(job.inputs.exclude))


def _write_piece(job: Job, layout: Layout, excluded: pa.StringArray, piece: int) -> int:
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
