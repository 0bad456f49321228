"""The second phase: exact deduplication by partitions of hashes.

Each partition holds a range of hash values, and so all copies of its pairs. A worker gathers a partition from the sorted hashes of
all pieces, whose bytes it finds by binary search, and keeps the first copy in the order of the text. The position of a pair is its
number among all pairs that the first phase left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stages.corpus.clean import CleanPiece
from stages.corpus.job import Job
from stages.corpus.ledger import SAMPLES

PARTITION_PAIRS = 1 << 20
"""Pairs of a partition, on average."""

Positions = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Duplicates:
    """Repetitions in a partition, or in all of them."""

    by_piece: npt.NDArray[np.int64]
    """Number of them in each piece."""
    first: Positions
    """Positions of the first `SAMPLES` of them, ascending."""

    @staticmethod
    def none(pieces: int) -> Duplicates:
        return Duplicates(np.zeros(pieces, np.int64), np.empty(0, np.uint64))

    def __add__(self, other: Duplicates) -> Duplicates:
        return Duplicates(self.by_piece + other.by_piece, np.sort(np.concatenate([self.first, other.first]))[:SAMPLES])


def partitions(pairs: int) -> int:
    """Return the number of partitions for a number of pairs."""
    return max(1, -(-pairs // PARTITION_PAIRS))


def partition_file(job: Job, partition: int, number: int) -> Path:
    """Return the file with the positions of the repetitions in one of `number` partitions, ascending."""
    return job.file(f"duplicates-{number}", partition)


def make_finder(argument: tuple[Job, Sequence[int], int]) -> Callable[[int], Duplicates]:
    """Return a function that finds the repetitions in a partition, unless an earlier attempt has done so, and counts them.

    The argument is the job, the number of pairs that are left in each piece, and the number of partitions.
    """
    job, pairs, number = argument
    return partial(_find, job, np.cumsum([0, *pairs]).astype(np.uint64), number)


def _find(job: Job, starts: Positions, number: int, partition: int) -> Duplicates:
    path = partition_file(job, partition, number)
    if not path.exists():
        hashes, positions = _gathered(job, starts, partition * 2**64 // number, (partition + 1) * 2**64 // number - 1)
        order = np.argsort(hashes, kind="stable")
        repeated = order[1:][hashes[order][1:] == hashes[order][:-1]]
        job.write(path, partial(_save, np.sort(positions[repeated])))
    found = np.load(path)
    return Duplicates(np.diff(np.searchsorted(found, starts)).astype(np.int64), found[:SAMPLES])


def _gathered(job: Job, starts: Positions, lowest: int, highest: int) -> tuple[npt.NDArray[np.uint64], Positions]:
    """Return the hashes in a range of values and the positions of their pairs, piece by piece."""
    hashes, positions = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for piece, start in enumerate(starts[:-1]):
        values, rows = np.load(CleanPiece.of(job, piece).hashes, mmap_mode="r")
        begin = int(np.searchsorted(values, np.uint64(lowest), "left"))
        end = int(np.searchsorted(values, np.uint64(highest), "right"))
        hashes.append(np.array(values[begin:end]))
        positions.append(rows[begin:end] + start)
    return np.concatenate(hashes), np.concatenate(positions)


def _save(values: Positions, path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, values)
