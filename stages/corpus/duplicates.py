"""The second phase: deduplication by partitions of hashes.

Each partition holds a range of hash values, and so all pairs that share one of them. A worker gathers a partition from the sorted
hashes of all pieces, whose bytes it finds by binary search, and keeps the first pair of each hash in the order of the text. The
position of a pair is its number among all pairs that the first phase left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from stages.corpus.clean import CleanPiece
from stages.corpus.job import Job
from stages.corpus.ledger import SAMPLES
from stages.corpus.similarity import bands

PARTITION_KEYS = 1 << 20
"""Keys of a partition, on average."""

Positions = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Found:
    """Repetitions in a partition, in a piece, or in all of them."""

    by_piece: npt.NDArray[np.int64]
    """Number of them in each piece."""
    first: Positions
    """Positions of the first `SAMPLES` of them, ascending."""

    @staticmethod
    def none(pieces: int) -> Found:
        return Found(np.zeros(pieces, np.int64), np.empty(0, np.uint64))

    def __add__(self, other: Found) -> Found:
        return Found(self.by_piece + other.by_piece, np.sort(np.concatenate([self.first, other.first]))[:SAMPLES])


@dataclass(frozen=True)
class RepetitionSearch:
    """A search for repetitions of one kind. Picklable."""

    job: Job
    kind: Literal["duplicate", "similar"]
    starts: Positions
    """Pairs that the first phase left in earlier pieces [pieces + 1]."""
    partitions: int

    @property
    def pieces(self) -> int:
        return len(self.starts) - 1

    def keys(self, piece: int) -> Path:
        """Return the file with the keys of a piece."""
        files = CleanPiece.of(self.job, piece)
        return files.hashes if self.kind == "duplicate" else files.bands

    def repetitions(self, partition: int) -> Path:
        """Return the file with the positions of the repetitions in a partition, ascending."""
        return self.job.file(f"{self.kind}-{self.partitions}", partition)

    def in_piece(self, piece: int) -> Positions:
        """Return the positions of the repetitions in a piece, from all partitions, ascending."""
        parts = []
        for partition in range(self.partitions):
            found = np.load(self.repetitions(partition), mmap_mode="r")
            begin, end = np.searchsorted(found, self.starts[piece : piece + 2])
            parts.append(np.array(found[begin:end]))
        return np.unique(np.concatenate(parts))


def searches(job: Job, pairs: Sequence[int]) -> list[RepetitionSearch]:
    """Return the searches that the config asks for. `pairs`: those that the first phase left in each piece."""
    filters = job.config.filters
    starts = np.cumsum([0, *pairs]).astype(np.uint64)
    found = []
    if filters and filters.drop_duplicates:
        found.append(RepetitionSearch(job, "duplicate", starts, _partitions(sum(pairs))))
    if filters and filters.max_similarity < 1:
        found.append(RepetitionSearch(job, "similar", starts, _partitions(sum(pairs) * bands(filters.max_similarity)[0])))
    return found


def _partitions(keys: int) -> int:
    return max(1, -(-keys // PARTITION_KEYS))


def make_finder(search: RepetitionSearch) -> Callable[[int], Found]:
    """Return a function that finds the repetitions in a partition, unless an earlier attempt has done so, and counts them."""
    return partial(_find, search)


def _find(search: RepetitionSearch, partition: int) -> Found:
    path = search.repetitions(partition)
    number = search.partitions
    if not path.exists():
        keys, positions = _gathered(search, partition * 2**64 // number, (partition + 1) * 2**64 // number - 1)
        order = np.argsort(keys, kind="stable")
        repeated = order[1:][keys[order][1:] == keys[order][:-1]]
        search.job.write(path, partial(_save, np.unique(positions[repeated])))
    found = np.load(path)
    return Found(np.diff(np.searchsorted(found, search.starts)).astype(np.int64), found[:SAMPLES])


def make_counter(searches: Sequence[RepetitionSearch]) -> Callable[[int], Found]:
    """Return a function that counts the repetitions in a piece that the last search finds and no earlier one."""
    return partial(_count, searches)


def _count(searches: Sequence[RepetitionSearch], piece: int) -> Found:
    *earlier, last = searches
    found = last.in_piece(piece)
    for search in earlier:
        found = np.setdiff1d(found, search.in_piece(piece), assume_unique=True)
    by_piece = np.zeros(last.pieces, np.int64)
    by_piece[piece] = len(found)
    return Found(by_piece, found[:SAMPLES])


def _gathered(search: RepetitionSearch, lowest: int, highest: int) -> tuple[npt.NDArray[np.uint64], Positions]:
    """Return the keys in a range of values and the positions of their pairs, piece by piece."""
    keys, positions = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for piece, start in enumerate(search.starts[:-1]):
        values, rows = np.load(search.keys(piece), mmap_mode="r")
        begin = int(np.searchsorted(values, np.uint64(lowest), "left"))
        end = int(np.searchsorted(values, np.uint64(highest), "right"))
        keys.append(np.array(values[begin:end]))
        positions.append(rows[begin:end] + start)
    return np.concatenate(keys), np.concatenate(positions)


def _save(values: Positions, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, values)
