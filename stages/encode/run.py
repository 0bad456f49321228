"""Run the encode stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from sentencepiece import SentencePieceProcessor

from fewstep.text.masks import kinds_of, mask_pair
from stages.context import Context, StepContext, WorkerContext
from stages.encode import EncodeConfig, EncodeInputs
from stages.encode.modifiers import modified
from stages.errors import StageError
from stages.shared.shards import drop_shards_from, read_shard, row_counts, rows_of, shard_path, shard_paths, write_shard
from stages.shared.vocabulary import processor

MAX_16_BIT_PIECES = 65535
"""Largest vocabulary whose ids are stored in 16 bits."""

SOURCES_CUT = b"sources_cut"
"""Key of the number of truncated sources in the metadata of a shard."""


class Encoded(NamedTuple):
    """Counts of one shard."""

    rows: int
    source_tokens: int
    target_tokens: int
    sources_cut: int


def run(inputs: EncodeInputs, config: EncodeConfig, context: StepContext) -> None:
    """Write a token shard for each text shard, with the same number and rows. Shards from an earlier attempt are kept."""
    rows = row_counts(inputs.text.path)
    argument = (inputs, config, context.for_workers())
    encoded: dict[int, Encoded] = {}
    done = 0
    total = sum(rows)
    for index, shard in context.workers.map(make_encoder, argument, range(len(rows))):
        encoded[index] = shard
        done += shard.rows
        context.progress(done, total, "pairs")
    drop_shards_from(context.directory, len(rows))
    if [encoded[index].rows for index in sorted(encoded)] != rows or row_counts(context.directory) != rows:
        raise StageError(
            f"{context.directory}: expected token shards of {rows} rows, got {row_counts(context.directory)}; run again"
        )
    summary = {
        "rows": total,
        "shards": len(rows),
        "source_tokens": sum(shard.source_tokens for shard in encoded.values()),
        "target_tokens": sum(shard.target_tokens for shard in encoded.values()),
        "source_size": processor(inputs.vocabulary.path, "source").get_piece_size(),
        "target_size": processor(inputs.vocabulary.path, "target").get_piece_size(),
    }
    if config.max_source_tokens is not None:
        cut = sum(shard.sources_cut for shard in encoded.values())
        summary |= {"max_source_tokens": config.max_source_tokens, "sources_cut": cut}
    context.write_json(context.directory / "tokens.json", summary)


def make_encoder(argument: tuple[EncodeInputs, EncodeConfig, WorkerContext]) -> Callable[[int], Encoded]:
    """Load both vocabularies, and return a function that encodes the shard of a given number."""
    inputs, config, context = argument
    processors = {side: processor(inputs.vocabulary.path, side) for side in ("source", "target")}
    return partial(_encode_shard, shard_paths(inputs.text.path), processors, config, context)


def _encode_shard(
    texts: list[Path], processors: dict[str, SentencePieceProcessor], config: EncodeConfig, context: Context, index: int
) -> Encoded:
    path = shard_path(context.directory, index)
    if not path.exists() or rows_of(path) != rows_of(texts[index]):
        text = _changed(read_shard(texts[index]), config)
        sides = _masked(text, processors["source"], config.mask_terms)
        columns = {side: encode_lines(lines, processors[side]) for side, lines in sides.items()}
        table = pa.table({"id": text["id"], **columns})
        write_shard(path, table if config.max_source_tokens is None else _cut(table, config.max_source_tokens), context)
    table = read_shard(path)
    source, target = (pc.sum(pc.list_value_length(table[side])).as_py() or 0 for side in ("source", "target"))
    return Encoded(table.num_rows, source, target, int((table.schema.metadata or {}).get(SOURCES_CUT, 0)))


def _changed(text: pa.Table, config: EncodeConfig) -> pa.Table:
    """Return the pairs with exchanged sides and modifiers, where the config has them."""
    source, target = ("target", "source") if config.swap else ("source", "target")
    rows = text["id"].to_pylist(), text[source].to_pylist(), text[target].to_pylist()
    if config.modifiers is not None:
        pairs = [modified(config.modifiers, *row) for row in zip(*rows, strict=True)]
        rows = rows[0], [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    elif not config.swap:
        return text
    return pa.table({"id": text["id"], "source": pa.array(rows[1], pa.string()), "target": pa.array(rows[2], pa.string())})


def _masked(text: pa.Table, pieces: SentencePieceProcessor, terms: bool) -> dict[str, list[str]]:
    """Return the lines of both sides, with masks if the vocabulary has them."""
    sides = {side: text[side].to_pylist() for side in ("source", "target")}
    if kinds := kinds_of(pieces):
        pairs = [mask_pair(*pair, kinds, terms) for pair in zip(sides["source"], sides["target"], strict=True)]
        return {"source": [source.text for source, _ in pairs], "target": [target for _, target in pairs]}
    return sides


def _cut(table: pa.Table, limit: int) -> pa.Table:
    """Truncate sources to `limit` tokens, and store the number of truncated sources in the metadata of the table."""
    cut = pc.sum(pc.greater(pc.list_value_length(table["source"]), limit)).as_py() or 0
    table = table.set_column(1, "source", pc.list_slice(table["source"], 0, limit, return_fixed_size_list=False))
    return table.replace_schema_metadata({SOURCES_CUT: str(cut)})


def encode_lines(lines: list[str], pieces: SentencePieceProcessor) -> pa.ListArray:
    """Return the ids of each line without BOS and EOS, as list<uint16>, or as list<uint32> for vocabularies beyond 16 bits."""
    width = pa.uint16() if pieces.get_piece_size() <= MAX_16_BIT_PIECES else pa.uint32()
    return pa.array(pieces.encode(lines, num_threads=1), pa.list_(width))
