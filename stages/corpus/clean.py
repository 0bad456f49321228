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

from stages.artifacts import ExternalFile, Text
from stages.context import json_text
from stages.corpus import CorpusConfig
from stages.corpus.filters import Cleaner, check_split, comparison_keys, usual_ratio
from stages.corpus.job import Job
from stages.corpus.language import OtherLanguage
from stages.corpus.ledger import Ledger
from stages.corpus.readers.reader import SKIPPED
from stages.corpus.similarity import band_hashes
from stages.errors import DataError
from stages.shared.normalise import normalise
from stages.shared.shards import read_shards

ROW = "row"
"""Column of the files between the phases: the number of pairs of the text before each pair."""


@dataclass(frozen=True)
class CleanPiece:
    """The files of a piece after the first phase."""

    rows: Path
    """The pairs that are left, in batches of an Arrow IPC file: row int64, source, target, for test texts also references."""
    hashes: Path
    """An array uint64 [2, N]: hashes of these pairs, ascending, and the position of each in `rows`, ascending for equal hashes."""
    bands: Path
    """An array like `hashes` with hashes of the bands of these pairs, if near-duplicates are dropped
    (`stages.corpus.similarity`)."""
    ledger: Path
    """The account of the piece, which is written last."""

    @staticmethod
    def of(job: Job, piece: int) -> CleanPiece:
        return CleanPiece(*(job.file(kind, piece) for kind in ("rows", "hashes", "bands", "ledger")))


def make_measurer(job: Job) -> Callable[[int], float]:
    """Return a function that measures the usual ratio of the lengths of both sides in a number of rows from the beginning."""
    return lambda rows: usual_ratio(map(_normalised, map(_pairs, job.text.read(0, rows))))


def make_cleaner(argument: tuple[Job, float]) -> Callable[[int], Ledger]:
    """Return a function that writes the files of a piece, unless an earlier attempt has done so, and returns its ledger."""
    job, ratio = argument
    config = job.config
    if config.filters is None:
        return partial(_clean, job, None)
    excluded = excluded_keys(job.inputs.exclude)
    threshold = config.filters.max_other_language
    other = OtherLanguage.of(config.languages, threshold) if threshold < 1 else None
    return partial(_clean, job, Cleaner(config.filters, *config.languages, excluded, ratio, other))


def _clean(job: Job, cleaner: Cleaner | None, piece: int) -> Ledger:
    files = CleanPiece.of(job, piece)
    ledger = Ledger()
    if files.ledger.exists():
        return Ledger(**json.loads(files.ledger.read_text(encoding="utf-8")))
    keys = Keys.of(job)

    def write_rows(path: Path) -> None:
        writer = None
        start = job.rows_of(piece).start
        with pa.OSFile(str(path), "wb") as file:
            for given in job.read(piece):
                if job.config.split:
                    check_split(given, start, lambda side: _first_file(job, side))
                table = _normalised(given)
                kept = _kept(table, cleaner, ledger, start)
                writer = writer or pa.ipc.new_file(file, kept.schema)
                writer.write_table(kept)
                keys.add(kept)
                start += table.num_rows
            if writer:
                writer.close()

    job.write(files.rows, write_rows)
    for path, values in ((files.hashes, keys.pairs), (files.bands, keys.bands)):
        if values:
            job.write(path, partial(_write_keys, values))
    # Last: later attempts take its presence for a finished piece.
    job.write(files.ledger, lambda path: path.write_text(json_text(ledger.to_json()), encoding="utf-8"))
    return ledger


def _first_file(job: Job, side: str) -> str:
    """Return the first file of a side of a text, or that of both sides, for errors."""
    given = vars(job.inputs.files)
    files = [file for files in (given.get(side, ()), *given.values()) for file in files if isinstance(file, ExternalFile)]
    return str(files[0].path) if files else "the embedded corpus"


def _kept(table: pa.Table, cleaner: Cleaner | None, ledger: Ledger, start: int) -> pa.Table:
    """Return the pairs of a table that pass the filters, and count the others. `start` rows of the text are before the table."""
    masks = {}
    if SKIPPED in table.column_names:
        reasons = table[SKIPPED]
        masks = {reason: pc.equal(reasons, reason).to_numpy() for reason in reasons.unique().to_pylist() if reason}
        table = table.drop_columns(SKIPPED)
    kept = ledger.enter(table, masks | (cleaner.masks(table) if cleaner else {}), start)
    return table.add_column(0, ROW, pa.array(range(start, start + table.num_rows), pa.int64())).filter(pa.array(kept))


def _pairs(table: pa.Table) -> pa.Table:
    """Return the rows that are pairs."""
    return table.filter(pc.equal(table[SKIPPED], "")) if SKIPPED in table.column_names else table


def _normalised(table: pa.Table) -> pa.Table:
    """Normalise every side. Further references become one column of lists that begin with the target."""
    sides = {name: normalise(table[name].combine_chunks()) for name in table.column_names if name != SKIPPED}
    others = [name for name in sides if name not in ("source", "target")]
    columns = {"source": sides["source"], "target": sides["target"]}
    if others:
        rows = zip(*(sides[name].to_pylist() for name in ("target", *others)), strict=True)
        columns["references"] = pa.array([list(row) for row in rows], pa.list_(pa.string()))
    return pa.table(columns | ({SKIPPED: table[SKIPPED]} if SKIPPED in table.column_names else {}))


@dataclass(frozen=True)
class Keys:
    """The keys by which equal and similar pairs are found: an array [N, keys of a pair] for each table of a piece."""

    config: CorpusConfig
    pairs: list[npt.NDArray[np.uint64]]
    bands: list[npt.NDArray[np.uint64]]

    @staticmethod
    def of(job: Job) -> Keys:
        return Keys(job.config, [], [])

    def add(self, table: pa.Table) -> None:
        """Add the keys that the filters of the config need."""
        filters = self.config.filters
        if filters and filters.drop_duplicates:
            self.pairs.append(pair_hashes(table)[:, None])
        if filters and filters.max_similarity < 1:
            self.bands.append(band_hashes(table, self.config.languages, filters.max_similarity))


def pair_hashes(table: pa.Table) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each pair [N]."""
    pairs = zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True)
    digests = [blake2b(f"{source}\n{target}".encode(), digest_size=8).digest() for source, target in pairs]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _write_keys(tables: list[npt.NDArray[np.uint64]], path: Path) -> None:
    keys = np.concatenate(tables)
    order = np.argsort(keys, axis=None, kind="stable")
    with path.open("wb") as file:  # np.save would append a suffix to the path
        np.save(file, np.stack([keys.ravel()[order], order.astype(np.uint64) // np.uint64(keys.shape[1])]))


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
