"""Decode a text piece by piece on workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

import durable
import fewstep
from fewstep.decoding import DecodingMemoryError, decode_sentences
from fewstep.text.glossary import Glossary, GlossaryError
from fewstep.translation import Hypothesis
from stages.artifacts import Text
from stages.context import StepContext, WorkerContext
from stages.errors import DataError, StageError, TransientError
from stages.shared.decoding.calibration import Calibration
from stages.shared.decoding.draft_statistics import numbers_of
from stages.shared.decoding.pieces import DecodeJob, Piece, check, cut, is_whole
from stages.shared.decoding.searches import check_engine
from stages.shared.decoding.systems import load
from stages.shared.shards import write_shard

log = logging.getLogger("fewstep")

NEAR_TIE = 1e-4
"""Margin in nats below which rounding, and so the other sentences of a batch, may change a hypothesis."""


@dataclass(frozen=True)
class DecodeStats:
    """Amount of output of one piece."""

    rows: int
    tokens: int
    """Tokens of the best hypotheses, without EOS."""


def decode_text(text: Text, job: DecodeJob, piece_rows: int, context: StepContext) -> list[Piece]:
    """Decode `text` in pieces of up to `piece_rows` rows of one shard, and return the pieces in the order of the text.

    Pieces in `context.shard_cache`, from an earlier attempt or another run over the same text, are not decoded again. Raises
    ArtifactError when a decoded piece does not hold exactly the rows of its sentences. Raises TransientError when the step was
    asked to stop; decoded pieces are kept.
    """
    durable.make_directory(context.shard_cache)
    pieces = list(cut(text, job, piece_rows, context.shard_cache))
    missing = [piece for piece in pieces if not is_whole(piece)]
    total = sum(piece.rows for piece in pieces)
    done = total - sum(piece.rows for piece in missing)
    began = time.monotonic()
    fresh = 0
    tokens = 0
    context.progress(done, total, "rows")
    for index, stats in context.workers.map(make_decoder, (job, context.for_workers()), missing):
        check(missing[index])
        fresh += stats.rows
        tokens += stats.tokens
        seconds = max(time.monotonic() - began, 1e-9)
        context.progress(done + fresh, total, "rows")
        if context.stop_requested() and done + fresh < total:
            raise TransientError(f"asked to stop: {done + fresh} of {total} sentences are decoded and kept")
        context.metrics(done + fresh, {"sentences_per_second": fresh / seconds, "target_tokens_per_second": tokens / seconds})
    return pieces


def make_decoder(argument: tuple[DecodeJob, WorkerContext]) -> Callable[[Piece], DecodeStats]:
    """Load the system of a job and return a function that decodes a piece into the shard cache.

    Raises StageError if the engine of the search is not installed.
    """
    job, context = argument
    check_engine(job.search)
    torch.set_num_threads(context.resources.threads)
    # On a GPU the CPU part of one batch's search overlaps with the network of another batch.
    device, in_flight = ("cuda", 2) if context.resources.gpus else ("cpu", 1)
    system = load(job.system, device)
    if job.glossary:
        system = with_glossary(system, Glossary(job.glossary))
    calibration = Calibration(system, job.search, device, context)

    def decode(piece: Piece) -> DecodeStats:
        rows = piece.read()
        lines = rows["source"].to_pylist()
        budget = calibration.batch_tokens(lines) if job.batch_tokens is None else job.batch_tokens
        sources, hypotheses = translate(system, lines, job.search, budget, in_flight, job.keep_masks)
        write_shard(
            piece.decoded, hypothesis_table(system, rows["id"].to_pylist(), lines, sources, hypotheses, job.keep_masks), context
        )
        log.info("decoded %s", piece.decoded.stem)
        return DecodeStats(len(hypotheses), sum(len(ranked[0].ids) for ranked in hypotheses))

    return decode


def with_glossary(system: fewstep.System, glossary: Glossary) -> fewstep.System:
    """Return a system with a glossary. Raises DataError if its vocabulary has no masks of terms."""
    try:
        return system.with_glossary(glossary)
    except GlossaryError as error:
        raise DataError(f"evaluation.glossary: {error}") from error


def translate(
    system: fewstep.System,
    lines: Sequence[str],
    search: Any,
    batch_tokens: int,
    in_flight: int = 1,
    keep_masks: bool = False,
) -> tuple[list[list[int]], list[list[Hypothesis]]]:
    """Return the source ids and the hypotheses (best first) of each line, in the order of the lines. With `keep_masks` they are
    those of `fewstep.System.keep_masks`.

    A blank line has one empty hypothesis. Raises StageError when the memory does not suffice for one sentence.
    """
    sources = system.encode(lines)
    try:
        found = decode_sentences(system.decoder, sources, search, batch_tokens=batch_tokens, in_flight=in_flight)
        return sources, system.keep_masks(sources, found, search) if keep_masks and system.masks else found
    except DecodingMemoryError as error:
        raise StageError(str(error)) from error


def hypothesis_table(
    system: fewstep.System,
    ids: Sequence[int],
    lines: Sequence[str],
    sources: list[list[int]],
    hypotheses: list[list[Hypothesis]],
    complete: bool = False,
) -> pa.Table:
    """Return the hypotheses of lines as rows with the columns of `Hypotheses`: ranks 0, 1, ... of each id in turn.

    `sources` are the tokens of the lines. With `complete`, masks that an output lacks are put back.
    """
    rows = [
        (id_, rank, hypothesis, len(source), line)
        for id_, line, source, ranked in zip(ids, lines, sources, hypotheses, strict=True)
        for rank, hypothesis in enumerate(ranked)
    ]
    outputs = [row[2].ids for row in rows]
    of_rows = [row[4] for row in rows]
    whole = system.complete_texts(outputs, of_rows) if complete and system.masks else None
    texts = system.decode_ids(outputs, of_rows) if whole is None else [text for text, _ in whole]
    columns = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "rank": pa.array([row[1] for row in rows], pa.int32()),
        "text": pa.array(texts, pa.string()),
        "ids": pa.array([row[2].ids for row in rows], pa.list_(pa.uint32())),
        "score": pa.array([row[2].score for row in rows], pa.float64()),
        "steps": pa.array([row[2].steps for row in rows], pa.int32()),
        "margin": pa.array([row[2].statistics.get("margin") for row in rows], pa.float64()),
        "source_tokens": pa.array([row[3] for row in rows], pa.int32()),
    }
    if whole is not None:
        columns["put_back"] = pa.array([count for _, count in whole], pa.int32())
    if any("drafted" in row[2].statistics for row in rows):
        numbers = [numbers_of(row[2].statistics) for row in rows]
        columns["drafting"] = pa.array(numbers, pa.map_(pa.string(), pa.float64()))
    return pa.table(columns)
