"""The interface of a format of text files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fewstep.documents.document import Languages
from stages.artifacts import ExternalFile
from stages.context import Context

SKIPPED = "skipped"
"""Column of the reasons why rows are no pairs, empty for pairs; formats whose rows are all pairs have none."""


class Span(NamedTuple):
    """A part of a file that one worker counts in one piece."""

    format: str
    file: ExternalFile
    text: Path
    """The file with its rows: `file`, or its decompressed copy."""
    languages: Languages
    start: int = 0
    stop: int = 0
    """Bytes, for formats that are counted in several parts."""


@dataclass(frozen=True)
class IndexedFile:
    """A file of one side of a text, or of both, with the index of its rows."""

    file: ExternalFile
    text: Path
    rows: int
    starts: npt.NDArray[np.int64]
    """Rows before each block, as the reader counts them."""

    @staticmethod
    def of(file: ExternalFile, text: Path, counts: list[int]) -> IndexedFile:
        """Return a file with the index of `counts`, the rows of its blocks in order."""
        return IndexedFile(file, text, sum(counts), np.cumsum([0, *counts[:-1]], dtype=np.int64))

    @property
    def shown(self) -> Path:
        """The name of the file in errors and records."""
        return self.file.path / self.file.member


class Reader(Protocol):
    """A format of text files. All functions raise DataError for a file that cannot be read or is badly encoded."""

    def packed(self, file: ExternalFile) -> bool:
        """Return whether a file has to be decompressed before its rows can be read from its middle."""

    def spans(self, file: ExternalFile, text: Path, languages: Languages) -> list[Span]:
        """Return the parts of a file that are counted one by one. `text` is the file or its decompressed copy."""

    def count(self, span: Span) -> list[int]:
        """Return the number of rows of each block of a span."""

    def unpack(self, file: ExternalFile, target: Path, languages: Languages, context: Context) -> None:
        """Write the rows of a packed file to `target`. Raises StageError when it cannot be written."""

    def rows(self, file: ExternalFile, languages: Languages | None) -> int:
        """Return the number of pairs of a file, which may be packed; without languages, of those in any two."""

    def line(self, file: IndexedFile, row: int) -> int:
        """Return the line of the file, from 1, at which a row begins; in a format without lines, the number of the row."""

    def read(self, file: IndexedFile, start: int, stop: int, side: str, languages: Languages) -> Iterator[pa.Table]:
        """Yield the rows `start` to `stop` in order, with the column `side`, or source and target for a format of both sides, and
        optionally `SKIPPED`."""
