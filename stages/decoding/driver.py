"""Translate a text piece by piece over workers, keeping every decoded piece across runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels import durable
from stages.artifacts import System, Text
from stages.context import Context, StepContext, WorkerContext
from stages.decode.draft_statistics import numbers_of
from stages.decoding.batching import batches, decode_batch
from stages.decoding.calibration import Calibration
from stages.decoding.ctranslate2 import check_engine
from stages.errors import ArtifactError, TransientError, unwritable
from stages.shards import read_shard, shard_paths, write_shard

if TYPE_CHECKING:
    import pyarrow as pa

    import models.bundle.system
    from models.family import Hypothesis

log = logging.getLogger("fewstep")

NEAR_TIE = 1e-4
"""Margin, in nats, below which rounding may change a hypothesis with the company that its sentence is decoded in."""

FORMAT = 1
"""Enters the name of every kept piece; raised, with the versions of decode and distill, when what decoding leaves changes."""


PIECE_ROWS = 256
"""Sentences decoded at a time: a test set keeps several workers busy, and a killed attempt loses little."""


@dataclass(frozen=True)
class Task:
    """What is the same for all pieces of one text."""

    system: System
    search: Any
    """The search, of the search type of the system's family."""
    batch_tokens: int | None
    """Padded source tokens in a batch, EOS included; None: the fastest size for each kind of device
    (`stages.decoding.calibration`)."""


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `start + rows` of a text shard, and where their hypotheses are kept."""

    shard: Path
    start: int
    rows: int
    decoded: Path

    def read(self) -> pa.Table:
        """The rows' `id` and `source`."""
        return read_shard(self.shard).select(["id", "source"]).slice(self.start, self.rows)


@dataclass(frozen=True)
class Pace:
    """What it took to decode one piece."""

    rows: int
    tokens: int
    """Tokens of the best hypotheses, without EOS."""


def decode_text(text: Text, task: Task, piece_rows: int, context: StepContext) -> list[Piece]:
    """Decode `text` in pieces of up to `piece_rows` rows of one shard; the decoded pieces, in the order of the text.

    Pieces that an earlier attempt, or another run over a part of the same text, left in `context.shard_cache` are not decoded
    again. Raises ArtifactError when a decoded piece does not hold exactly the rows of its sentences, TransientError when it was
    asked to stop (what was decoded is kept).
    """
    durable.make_directory(context.shard_cache)
    pieces = list(cut(text, task, piece_rows, context.shard_cache))
    missing = [piece for piece in pieces if not _is_whole(piece)]
    total, done = sum(piece.rows for piece in pieces), sum(piece.rows for piece in pieces) - sum(piece.rows for piece in missing)
    began, fresh, tokens = time.monotonic(), 0, 0
    context.progress(done, total, "rows")
    helper = context.for_workers()
    for index, pace in context.workers.map(make_decoder, (task, helper), missing):
        check(missing[index])
        fresh, tokens = fresh + pace.rows, tokens + pace.tokens
        seconds = max(time.monotonic() - began, 1e-9)
        context.progress(done + fresh, total, "rows")
        if context.stop_requested() and done + fresh < total:
            raise TransientError(f"asked to stop: {done + fresh} of {total} sentences are decoded and kept")
        context.metrics(done + fresh, {"sentences_per_second": fresh / seconds, "target_tokens_per_second": tokens / seconds})
    return pieces


def cut(text: Text, task: Task, piece_rows: int, cache: Path) -> Iterator[Piece]:
    """The pieces of a text. They depend on the text alone, so that appended rows leave all full pieces as they were."""
    for path in shard_paths(text.path):
        table = read_shard(path).select(["id", "source"])
        for start in range(0, table.num_rows, piece_rows):
            rows = table.slice(start, piece_rows)
            yield Piece(path, start, rows.num_rows, cache / f"{content_key(rows, task)}.arrow")


def content_key(rows: pa.Table, task: Task) -> str:
    """sha256 of all that a decoded piece depends on: its sentences, the system, the search and the batches."""
    recipe = {
        "format": FORMAT,
        "system": task.system.fingerprint,
        "search": [type(task.search).__name__, asdict(task.search)],
        "batch_tokens": task.batch_tokens,
        "rows": list(zip(rows["id"].to_pylist(), rows["source"].to_pylist(), strict=True)),
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def make_decoder(argument: tuple[Task, WorkerContext]) -> Callable[[Piece], Pace]:
    """One worker: loads the system once, then decodes pieces into the shard cache. Raises StageError without its engine."""
    import torch

    task, context = argument
    check_engine(task.search)
    torch.set_num_threads(context.resources.threads)
    device, in_flight = ("cuda", 2) if context.resources.gpus else ("cpu", 1)
    system = load(task.system, device)
    calibration = Calibration(system, task.search, device, context)

    def decode(piece: Piece) -> Pace:
        rows = piece.read()
        lines = rows["source"].to_pylist()
        budget = calibration.batch_tokens(lines) if task.batch_tokens is None else task.batch_tokens
        sources, hypotheses = translate(system, lines, task.search, budget, in_flight)
        write_shard(piece.decoded, decoded_table(system, rows["id"].to_pylist(), sources, hypotheses), context)
        log.info("decoded %s", piece.decoded.stem)
        return Pace(len(hypotheses), sum(len(ranked[0].ids) for ranked in hypotheses))

    return decode


def load(system: System, device: str) -> models.bundle.system.System:
    """A system that is ready to translate. Raises ArtifactError when its directory does not hold a whole one."""
    from fewstep.system.format import BundleError
    from models.bundle.directory import load_system

    try:
        return load_system(system.path, device)
    except BundleError as error:
        raise ArtifactError(f"{error}; remove the artifact and run again") from error


def translate(
    system: models.bundle.system.System, lines: Sequence[str], search: Any, batch_tokens: int, in_flight: int = 1
) -> tuple[list[list[int]], list[list[Hypothesis]]]:
    """Source ids and hypotheses (best first) of each line, in the order of the lines. A blank line has one empty hypothesis.

    With several batches `in_flight`, the search of one on the CPU goes on while the network is busy with another on a GPU. Raises
    StageError when the memory does not suffice for one sentence.
    """
    from models.common.prefetch import prefetch
    from models.family import Hypothesis

    sources: list[list[int]] = system.encode(lines)
    hypotheses = [[Hypothesis([], 0.0, 0)] for _ in lines]
    planned = batches([len(ids) for ids in sources], batch_tokens)
    prepared = prefetch(lambda batch: system.decoder.prepare([sources[row] for row in batch], search), planned)

    def decode(made: tuple[list[int], Any]) -> list[list[Hypothesis]]:
        return decode_batch(system, search, [sources[row] for row in made[0]], made[1])

    with ThreadPoolExecutor(in_flight) as threads:
        found = (threads.map if in_flight > 1 else map)(decode, prepared)
        for batch, ranked_batch in zip(planned, found, strict=True):
            for index, ranked in zip(batch, ranked_batch, strict=True):
                hypotheses[index] = ranked
    return sources, hypotheses


def decoded_table(
    system: models.bundle.system.System, ids: Sequence[int], sources: list[list[int]], hypotheses: list[list[Hypothesis]]
) -> pa.Table:
    """Hypotheses as rows: the columns of `Hypotheses`, ranks 0, 1, ... of each id in turn."""
    import pyarrow as pa

    rows = [
        (id_, rank, hypothesis, len(source))
        for id_, source, ranked in zip(ids, sources, hypotheses, strict=True)
        for rank, hypothesis in enumerate(ranked)
    ]
    columns = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "rank": pa.array([row[1] for row in rows], pa.int32()),
        "text": pa.array(system.decode_ids([row[2].ids for row in rows]), pa.string()),
        "ids": pa.array([row[2].ids for row in rows], pa.list_(pa.uint32())),
        "score": pa.array([row[2].score for row in rows], pa.float64()),
        "steps": pa.array([row[2].steps for row in rows], pa.int32()),
        "margin": pa.array([row[2].statistics.get("margin") for row in rows], pa.float64()),
        "source_tokens": pa.array([row[3] for row in rows], pa.int32()),
    }
    if any("drafted" in row[2].statistics for row in rows):
        told = [numbers_of(row[2].statistics) for row in rows]
        columns["drafting"] = pa.array(told, pa.map_(pa.string(), pa.float64()))
    return pa.table(columns)


def check(piece: Piece) -> None:
    """Raises ArtifactError unless the decoded piece holds the ids of its sentences, each with ranks 0, 1, ... in order."""
    expected = piece.read()["id"].to_pylist()
    table = read_shard(piece.decoded)
    ids, ranks = table["id"].to_pylist(), table["rank"].to_pylist()
    best = [id_ for id_, rank in zip(ids, ranks, strict=True) if rank == 0]
    where = f"{piece.decoded}: hypotheses of rows {piece.start} to {piece.start + piece.rows} of {piece.shard}"
    if best != expected:
        missing, extra = sorted(set(expected) - set(best)), sorted(set(best) - set(expected))
        repeated = sorted({id_ for id_ in best if best.count(id_) > 1})
        raise ArtifactError(
            f"{where}: expected {len(expected)} ids {_span(expected)}, got {len(best)} {_span(best)}"
            f" (missing {missing[:3]}, foreign {extra[:3]}, repeated {repeated[:3]}); remove the file and run again"
        )
    for row in range(1, len(ids)):
        if ranks[row] and (ids[row], ranks[row]) != (ids[row - 1], ranks[row - 1] + 1):
            raise ArtifactError(f"{where}: expected ranks 0, 1, ... of id {ids[row]}, got {ranks[row]}; remove the file")


def _span(ids: Sequence[int]) -> str:
    return f"({ids[0]} to {ids[-1]})" if ids else "(none)"


def _is_whole(piece: Piece) -> bool:
    try:
        if piece.decoded.is_file():
            check(piece)
            return True
    except (ArtifactError, KeyError):
        piece.decoded.unlink(missing_ok=True)
    return False


def copy(kept: Path, path: Path, context: Context) -> None:
    """Put a kept piece at `path`; a copy, so that damage to the one is not damage to the other. Raises StageError when it fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, context.temporary(path))
        os.replace(context.temporary(path), path)
    except OSError as error:
        raise unwritable(path, error) from error
