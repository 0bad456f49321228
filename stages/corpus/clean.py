"""The first phase: normalise and filter each piece of a text, and hash the pairs that are left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import Text
from stages.context import json_text
from stages.corpus.filters import Cleaner, comparison_keys, normalise
from stages.corpus.job import Job
from stages.corpus.ledger import Ledger
from stages.corpus.length_ratio import sampled_rows, usual_ratio
from stages.errors import DataError
from stages.shards import read_shards

ROW = "row"
"""Column of the files between the phases: the number of pairs of the text before each pair."""


@dataclass(frozen=True)
class CleanPiece:
    """The files of a piece after the first phase."""

    rows: Path
    """The pairs that are left, in batches of an Arrow IPC file: row int64, source, target, for test texts also references."""
    hashes: Path
    """uint64 [2, N]: the hashes of these pairs, ascending, and the position of each pair in `rows`; equal hashes by position."""
    ledger: Path
    """The account of the piece, which is written last."""

    @staticmethod
    def of(job: Job, piece: int) -> CleanPiece:
        return CleanPiece(*(job.file(kind, piece) for kind in ("rows", "hashes", "ledger")))


def measured_ratio(job: Job) -> float:
    """Return the usual ratio of the lengths of both sides, from the beginning of the text."""
    return usual_ratio(map(_normalised, job.text.read(0, sampled_rows(job.text.batches()))))


def make_cleaner(argument: tuple[Job, float]) -> Callable[[int], Ledger]:
    """Return a function that writes the files of a piece, unless an earlier attempt has done so, and returns its ledger."""
    job, ratio = argument
    config = job.config
    if config.filters is None:
        return partial(_clean, job, None)
    excluded = excluded_keys(job.inputs.exclude)
    return partial(_clean, job, Cleaner(config.filters, config.source_language, config.target_language, excluded, ratio))


def _clean(job: Job, cleaner: Cleaner | None, piece: int) -> Ledger:
    files, ledger = CleanPiece.of(job, piece), Ledger()
    if files.ledger.exists():
        return Ledger(**json.loads(files.ledger.read_text(encoding="utf-8")))
    hashes = [np.empty(0, np.uint64)]

    def write_rows(path: Path) -> None:
        writer, start = None, job.rows_of(piece).start
        with pa.OSFile(str(path), "wb") as file:
            for table in map(_normalised, job.read(piece)):
                kept = _kept(table, cleaner, ledger, start)
                writer = writer or pa.ipc.new_file(file, kept.schema)
                writer.write_table(kept)
                hashes.append(pair_hashes(kept) if cleaner and cleaner.filters.drop_duplicates else hashes[0])
                start += table.num_rows
            if writer:
                writer.close()

    job.write(files.rows, write_rows)
    if cleaner and cleaner.filters.drop_duplicates:
        job.write(files.hashes, partial(_write_hashes, np.concatenate(hashes)))
    job.write(files.ledger, lambda path: path.write_text(json_text(ledger.to_json()), encoding="utf-8"))
    return ledger


def _kept(table: pa.Table, cleaner: Cleaner | None, ledger: Ledger, start: int) -> pa.Table:
    """Return the pairs of a table that pass the filters, and count the others. `start` rows of the text are before the table."""
    kept = ledger.enter(table, cleaner.masks(table) if cleaner else {}, start)
    return table.add_column(0, ROW, pa.array(range(start, start + table.num_rows), pa.int64())).filter(pa.array(kept))


def _normalised(table: pa.Table) -> pa.Table:
    """Normalise every side. Further references become one column of lists that begin with the target."""
    sides = {name: normalise(table[name].combine_chunks()) for name in table.column_names}
    others = [name for name in sides if name not in ("source", "target")]
    columns = {"source": sides["source"], "target": sides["target"]}
    if others:
        rows = zip(*(sides[name].to_pylist() for name in ("target", *others)), strict=True)
        columns["references"] = pa.array([list(row) for row in rows], pa.list_(pa.string()))
    return pa.table(columns)


def pair_hashes(table: pa.Table) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each pair [N]."""
    pairs = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
    digests = [blake2b(f"{source}\n{target}".encode(), digest_size=8).digest() for source, target in pairs]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _write_hashes(hashes: npt.NDArray[np.uint64], path: Path) -> None:
    order = np.argsort(hashes, kind="stable")
    with path.open("wb") as file:  # np.save would append a suffix to the path
        np.save(file, np.stack([hashes[order], order.astype(np.uint64)]))


def excluded_keys(texts: Iterable[Text]) -> pa.StringArray:
    """Return the distinct comparison keys of all sides of the texts.

    Raises ArtifactError for a text that cannot be read. Raises DataError for a text without sentences, since training text could
    not be compared with it.
    """
    keys: list[pa.StringArray] = []
    for text in texts:
        start = len(keys)
        for table in read_shards(text.path):
            sides: list[Any] = [table["source"], table["target"]]
            if "references" in table.column_names:
                sides.append(pc.list_flatten(table["references"]))
            keys += [comparison_keys(side.combine_chunks()) for side in sides]
        if not any(pc.any(pc.not_equal(part, "")).as_py() for part in keys[start:]):
            raise DataError(
                f"{text.path}: expected sentences to compare training text with, got none; check the validation and test files"
            )
    joined = pa.concat_arrays(keys).unique() if keys else pa.array([], pa.string())
    return joined.filter(pc.not_equal(joined, ""))
