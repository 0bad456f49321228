"""Pieces of texts, whose hypotheses are kept in the shard cache and reused by later runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts import System, Text
from stages.context import Context
from stages.errors import ArtifactError, unwritable
from stages.shared.shards import read_shard, shard_paths

PIECE_ROWS = 256
"""Rows of a piece: few enough that a test set occupies several workers and a killed attempt loses little."""


@dataclass(frozen=True)
class DecodeJob:
    """The system, search and batches of all pieces of a text."""

    system: System
    search: Any
    """A search of the type of the system's family."""
    stage: tuple[str, int]
    """Name and version of the stage that decodes. Pieces of other versions are not reused."""
    batch_tokens: int | None
    """Padded source tokens in a batch, EOS included. None: the fastest size for each kind of device
    (`stages.shared.decoding.calibration`)."""
    glossary: tuple[tuple[str, str], ...] = ()
    """Terms that are translated as stated. Empty: none."""
    keep_masks: bool = False
    """Whether outputs have the masks of their sources (`fewstep.System.keep_masks`)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `start` to `start + rows` of a text shard, and the file with their hypotheses.

    A text of 100 million sentences has hundreds of thousands of pieces, so they share the paths of shards and of the cache.
    """

    shard: Path
    start: int
    rows: int
    cache: Path
    key: str
    """The `content_key`."""

    @property
    def decoded(self) -> Path:
        """The file in the shard cache."""
        return self.cache / f"{self.key}.arrow"

    def read(self) -> pa.Table:
        """Return the columns `id` and `source` of the rows."""
        return read_shard(self.shard).select(["id", "source"]).slice(self.start, self.rows)


def cut(text: Text, job: DecodeJob, piece_rows: int, cache: Path) -> Iterator[Piece]:
    """Yield the pieces of a text. Rows that are appended to a text do not change its full pieces."""
    for path in shard_paths(text.path):
        table = read_shard(path).select(["id", "source"])
        for start in range(0, table.num_rows, piece_rows):
            rows = table.slice(start, piece_rows)
            yield Piece(path, start, rows.num_rows, cache, content_key(rows, job))


def content_key(rows: pa.Table, job: DecodeJob) -> str:
    """Return the SHA-256 of all inputs of a decoded piece: its sentences, the system, the search, the size of batches, and
    the stage with its version."""
    recipe = {
        "stage": job.stage,
        "system": job.system.fingerprint,
        "search": [type(job.search).__name__, job.search.values()],
        "batch_tokens": job.batch_tokens,
        "rows": list(zip(rows["id"].to_pylist(), rows["source"].to_pylist(), strict=True)),
        **({"placeholders": "settled"} if job.keep_masks else {}),
        **({"glossary": job.glossary} if job.glossary else {}),
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def check(piece: Piece) -> None:
    """Raise ArtifactError unless the decoded piece holds the ids of its sentences, each with ranks 0, 1, ... in order."""
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
            f" (missing {missing[:3]}, unexpected {extra[:3]}, repeated {repeated[:3]}); remove the file and run again"
        )
    for row in range(1, len(ids)):
        if ranks[row] and (ids[row], ranks[row]) != (ids[row - 1], ranks[row - 1] + 1):
            raise ArtifactError(
                f"{where}: expected ranks 0, 1, ... of id {ids[row]}, got {ranks[row]}; remove the file and run again"
            )


def is_whole(piece: Piece) -> bool:
    """Return whether a piece is decoded. A damaged file is removed."""
    try:
        if piece.decoded.is_file():
            check(piece)
            return True
    except (ArtifactError, KeyError):
        piece.decoded.unlink(missing_ok=True)
    return False


def copy(kept: Path, path: Path, context: Context) -> None:
    """Copy a kept piece to `path`, so that damage to one file does not affect the other. Raises StageError when that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, context.temporary(path))
        os.replace(context.temporary(path), path)
    except OSError as error:
        raise unwritable(path, error) from error


def _span(ids: Sequence[int]) -> str:
    return f"({ids[0]} to {ids[-1]})" if ids else "(no ids)"
