"""The job of a corpus step: a text in pieces, and the files between the phases that work on it.

Memory holds one batch of a piece at a time. Everything else is on disk, in files below the checkpoints of the step. A file gets its
name when it is complete, so that an attempt continues where an earlier one ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import durable
from stages.artifacts import CHECKPOINTS
from stages.context import StepContext, WorkerContext
from stages.corpus import STAGE, CorpusConfig, CorpusInputs
from stages.corpus.indexed_text import EmbeddedText, IndexedText, open_text
from stages.errors import unwritable
from stages.shared.phases import Phases

PIECE_ROWS = 1 << 17
"""Pairs of a piece. A worker that is killed loses the work on one piece at most; each partition of hashes reads from all pieces."""


@dataclass(frozen=True)
class Job:
    """A text and what to do with it. Picklable."""

    inputs: CorpusInputs
    config: CorpusConfig
    context: WorkerContext
    text: IndexedText | EmbeddedText
    piece_rows: int
    key: str
    """Digest of everything that the files between the phases depend on; a part of their names."""

    @property
    def pieces(self) -> int:
        return -(-self.text.rows // self.piece_rows)

    def rows_of(self, piece: int) -> range:
        """Return the rows of the text in a piece."""
        start = piece * self.piece_rows
        return range(start, min(start + self.piece_rows, self.text.rows))

    def read(self, piece: int) -> Iterator[pa.Table]:
        """Yield the rows of a piece as they are in the files."""
        rows = self.rows_of(piece)
        return self.text.read(rows.start, rows.stop)

    def file(self, kind: str, number: int) -> Path:
        """Return the path of a file between the phases."""
        return self.context.directory / CHECKPOINTS / f"{self.key}-{kind}-{number:05d}"

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        """Call `write` with a temporary path, and rename the file. Raises StageError when it cannot be written."""
        try:
            durable.make_directory(path.parent)
            durable.write_whole(path, write, self.context.temporary(path))
        except OSError as error:
            raise unwritable(path, error) from error


def open_job(inputs: CorpusInputs, config: CorpusConfig, context: StepContext, piece_rows: int = PIECE_ROWS) -> Job:
    """Return the job of a step. Raises DataError for files that cannot be read or that do not belong together."""
    folder = context.directory / CHECKPOINTS
    if config.embedded:
        text: IndexedText | EmbeddedText = EmbeddedText.of(config)
    else:
        text = open_text(inputs.files, config.languages, folder, Phases(context))
    digests = [(side, file.file.digest, file.rows) for side, file in text.counts()]
    excluded = [exclude.fingerprint for exclude in inputs.exclude]
    recipe = repr((STAGE.version, config, digests, excluded, piece_rows))
    return Job(inputs, config, context.for_workers(), text, piece_rows, hashlib.sha256(recipe.encode()).hexdigest()[:16])
