"""Run the likelihood stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from math import exp, fsum
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts import System, Text
from stages.context import Context, StepContext, WorkerContext
from stages.errors import ArtifactError, DataError, TransientError
from stages.likelihood import LikelihoodConfig, LikelihoodInputs
from stages.shared.decoding.systems import load_for_worker
from stages.shared.scoring.pairs import score_pairs
from stages.shared.shards import drop_shards_from, read_shard, rows_of, shard_path, shard_paths, write_shard

PIECE_ROWS = 256
"""Rows of a piece and of a shard. A killed attempt loses at most one piece of each worker."""


def run(inputs: LikelihoodInputs, config: LikelihoodConfig, context: StepContext) -> None:
    """Write the log-probability of every target (the first reference) and `likelihood.json`.

    Pairs with an empty side, or a side that is too long for the network, are left out and counted. Raises DataError when all pairs
    are left out. Raises TransientError when the step was asked to stop; scored pieces are kept.
    """
    pieces = list(cut(inputs.text, context))
    missing = [piece for piece in pieces if not piece.is_whole()]
    total = sum(piece.rows for piece in pieces)
    done = total - sum(piece.rows for piece in missing)
    context.progress(done, total, "sentences")
    for _, rows in context.workers.map(make_scorer, (inputs.system, context.for_workers()), missing):
        done += rows
        context.progress(done, total, "sentences")
        if context.stop_requested() and done < total:
            raise TransientError(f"asked to stop: {done} of {total} sentences are scored and kept")
    drop_shards_from(context.directory, len(pieces))
    summary = summarise([row for piece in pieces for row in read_shard(piece.scored).to_pylist()])
    if not summary["tokens"]:
        raise DataError(
            f"likelihood: expected pairs that the system can score, got none of {total} ({summary['left_out']}); "
            "check the lengths of the test set"
        )
    context.metrics(0, {"perplexity": summary["perplexity"]})
    context.write_json(context.directory / "likelihood.json", {**summary, "vocabulary": vocabulary_of(inputs.system)})


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `start + rows` of a text shard, and the file for their log-probabilities."""

    shard: Path
    start: int
    rows: int
    scored: Path

    def read(self) -> pa.Table:
        """Return the columns `id`, `source` and `target` of the rows."""
        return read_shard(self.shard).select(["id", "source", "target"]).slice(self.start, self.rows)

    def is_whole(self) -> bool:
        """Return whether an earlier attempt scored the piece."""
        try:
            return self.scored.is_file() and bool(read_shard(self.scored)["id"].equals(self.read()["id"]))
        except (ArtifactError, KeyError):
            return False


def cut(text: Text, context: Context) -> Iterator[Piece]:
    """Yield the pieces of a text, in order."""
    count = 0
    for path in shard_paths(text.path):
        rows = rows_of(path)
        for start in range(0, rows, PIECE_ROWS):
            yield Piece(path, start, min(PIECE_ROWS, rows - start), shard_path(context.directory, count))
            count += 1


def make_scorer(argument: tuple[System, WorkerContext]) -> Callable[[Piece], int]:
    """Load the system, and return a function that scores a piece and returns its number of rows."""
    artifact, context = argument
    system = load_for_worker(artifact, context)

    def score(piece: Piece) -> int:
        table = piece.read()
        found = score_pairs(system, table["source"].to_pylist(), table["target"].to_pylist())
        columns = {
            "id": table["id"].combine_chunks(),
            "log_probability": pa.array([scored.log_probability for scored in found], pa.float64()),
            "tokens": pa.array([scored.tokens for scored in found], pa.int32()),
            "left_out": pa.array([scored.left_out for scored in found], pa.string()),
        }
        write_shard(piece.scored, pa.table(columns), context)
        return len(found)

    return score


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of `likelihood.json`. Perplexity is exp(-log-probability / tokens), tokens with EOS."""
    kept = [row for row in rows if row["left_out"] is None]
    tokens = sum(row["tokens"] for row in kept)
    total = fsum(row["log_probability"] for row in kept)
    left_out = Counter(row["left_out"] for row in rows if row["left_out"] is not None)
    return {
        "rows": len(rows),
        "left_out": {reason: left_out[reason] for reason in sorted(left_out)},
        "tokens": tokens,
        "log_probability": total,
        "perplexity": exp(-total / tokens) if tokens else None,
    }


def vocabulary_of(system: System) -> str:
    """Return a digest of the target vocabulary. Perplexities over different vocabularies are not comparable."""
    return sha256((system.path / "target.spm").read_bytes()).hexdigest()[:8]
