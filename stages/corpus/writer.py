"""Write raw text as clean shards, with a ledger of dropped pairs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts import Text
from stages.context import Context
from stages.corpus import CorpusConfig, CorpusInputs
from stages.corpus.embedded import LANGUAGES, documents, pairs
from stages.corpus.filters import Cleaner, Ledger, comparison_keys, normalise, overlap
from stages.corpus.reader import BATCH_ROWS, Reader
from stages.errors import DataError, StageError
from stages.shards import read_shards, write_shards


def write_text(inputs: CorpusInputs, config: CorpusConfig, context: Context) -> None:
    """Write the shards and the files beside them; see `stages.corpus.run`."""
    reader = Reader(config.source_language, config.target_language)
    raw = embedded_tables(config) if config.embedded else reader.read(inputs.files)
    tables = _watched(map(_normalised, raw), config.embedded, context)
    if config.filters is None:
        counts = write_shards(_numbered(tables), context.directory, config.shard_rows, context)
    else:
        excluded = excluded_keys(inputs.exclude)
        cleaner = Cleaner(config.filters, config.source_language, config.target_language, excluded)
        counts = write_shards(_numbered(cleaner.clean(tables)), context.directory, config.shard_rows, context)
        _check_kept(cleaner.ledger)
        _check_written(excluded, sum(counts), context)
        files = [{"side": count.side, "digest": count.file.digest, "lines": count.lines} for count in reader.counts]
        context.write_json(context.directory / "ledger.json", cleaner.ledger.to_json() | {"files": files})
    context.write_json(
        context.records("files.json"),
        [{"side": count.side, "path": str(count.file.path / count.file.member), "lines": count.lines} for count in reader.counts],
    )
    if not sum(counts):
        names = ", ".join(str(count.file.path / count.file.member) for count in reader.counts)
        raise DataError(
            f"corpus: expected at least one pair of sentences, got an empty text: {names}; check the files in the config"
        )
    context.write_json(
        context.directory / "text.json", {"rows": sum(counts), "shards": len(counts), "shard_rows": config.shard_rows}
    )


def embedded_tables(config: CorpusConfig) -> Iterator[pa.Table]:
    """Yield the first `config.embedded` pairs of a part of the embedded corpus. Raises DataError for other languages."""
    languages = (config.source_language, config.target_language)
    expected = LANGUAGES[config.task]
    if sorted(languages) != sorted(expected):
        raise DataError(
            f"the embedded corpus: expected languages {expected[0]} and {expected[1]}, got {languages[0]} and {languages[1]}; "
            "use files for other languages"
        )
    stream = (pairs if config.task == "translation" else documents)(config.part, 0, config.embedded)
    while batch := list(islice(stream, BATCH_ROWS)):
        first, second = zip(*batch, strict=True)
        sides = (first, second) if languages[0] == expected[0] else (second, first)
        yield pa.table([pa.array(side, pa.string()) for side in sides], ["source", "target"])


def excluded_keys(texts: Iterable[Text]) -> pa.StringArray:
    """Return the distinct comparison keys of all sides of the texts.

    Raises ArtifactError for a text that cannot be read. Raises DataError for a text without sentences, since training text could
    not be compared with it.
    """
    keys: list[pa.StringArray] = []
    for text in texts:
        start = len(keys)
        for table in read_shards(text.path):
            sides = [table["source"], table["target"]]
            if "references" in table.column_names:
                sides.append(pc.list_flatten(table["references"]))
            keys += [comparison_keys(side.combine_chunks()) for side in sides]
        if not any(pc.any(pc.not_equal(part, "")).as_py() for part in keys[start:]):
            raise DataError(
                f"{text.path}: expected sentences to compare training text with, got none; check the validation and test files"
            )
    joined = pa.concat_arrays(keys).unique() if keys else pa.array([], pa.string())
    return joined.filter(pc.not_equal(joined, ""))


def _normalised(table: pa.Table) -> pa.Table:
    """Normalise every side. Further references become one column of lists that begin with the target."""
    sides = {name: normalise(table[name].combine_chunks()) for name in table.column_names}
    others = [name for name in sides if name not in ("source", "target")]
    columns = {"source": sides["source"], "target": sides["target"]}
    if others:
        rows = zip(*(sides[name].to_pylist() for name in ("target", *others)), strict=True)
        columns["references"] = pa.array([list(row) for row in rows], pa.list_(pa.string()))
    return pa.table(columns)


def _numbered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    start = 0
    for table in tables:
        yield table.add_column(0, "id", pa.array(range(start, start + table.num_rows), pa.int64()))
        start += table.num_rows


def _watched(tables: Iterable[pa.Table], total: int, context: Context) -> Iterator[pa.Table]:
    done = 0
    for table in tables:
        yield table
        done += table.num_rows
        context.progress(done, max(done, total), "pairs")


def _check_kept(ledger: Ledger) -> None:
    if ledger.pairs_in and not ledger.pairs_out:
        account = json.dumps(ledger.to_json(), ensure_ascii=False)
        raise DataError(
            f"corpus: expected pairs that pass the filters, got none of {ledger.pairs_in}; the ledger: {account}; relax the filters"
        )


def _check_written(excluded: pa.StringArray, rows: int, context: Context) -> None:
    """Read the shards again. Raises StageError unless they hold `rows` rows and no side is in `excluded`."""
    found = 0
    for table in read_shards(context.directory):
        found += table.num_rows
        for side in ("source", "target"):
            if overlap(table[side].combine_chunks(), excluded).any():
                raise StageError(
                    f"{context.directory}: expected no sentence of a validation or test text in the {side} side, got some; run "
                    "again"
                )
    if found != rows:
        raise StageError(f"{context.directory}: expected {rows} rows in the shards, got {found}; run again")
