"""Counting of candidate tables (Deng and Rush 2021) from linked sentence pairs; `fewstep.candidates` looks them up.

Shards are counted independently (`count_candidates`); their counts are merged into one table (`merge_candidates`), whose bytes do
not depend on the distribution of pairs over shards. `kernels.reference.candidates` is the slow reference.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewstep.candidates import CountSummary, TableSummary, as_int64
from fewstep.native import fewstep_native

NO_VOCABULARY = bytes(32)
"""The digest in tables of an unnamed vocabulary."""


class Sentences(NamedTuple):
    """Concatenated sentences: sentence i is `values[starts[i]:starts[i + 1]]`."""

    values: NDArray[Any]
    """Integers [tokens]."""
    starts: NDArray[Any]
    """[sentences + 1], from 0 to the number of tokens."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Sentences:
        """Concatenate lists of integers."""
        rows = list(rows)
        values = np.array([value for row in rows for value in row], np.int64)
        return cls(values, np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)]))


@dataclass(frozen=True, kw_only=True)
class CountOptions:
    """Options of counting; the same for all shards of a table."""

    source_size: int
    """Pieces of the source vocabulary, at most 2^24."""
    target_size: int
    """Pieces of the target vocabulary, at most 2^24."""
    max_offset: int = 127
    """Links between positions that are further apart are dropped."""
    max_length: int = 256
    """Pairs with more pieces on one side are left out; at most 65,535."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of a table."""

    top: int = 40
    """Most frequent target pieces kept of each row (x, offset)."""
    reserved: int = 7
    """Target pieces below this id count in the totals of rows but are not candidates."""
    backoff: float = 0.0
    """Number of links that P(y | x), over all offsets, counts as in each row; its `top` pieces are kept. 0, as in the paper: no
    smoothing."""
    tension: float = 4.0
    """The aligner's tension, for the diagonal prior that replaces cells (S, t) without counts."""
    vocabulary: bytes = NO_VOCABULARY
    """32-byte digest of the vocabulary, which `CandidateTables.load` compares."""


def count_candidates(
    source: Sentences, target: Sentences, links: ArrayLike, path: str | os.PathLike[str], *, options: CountOptions
) -> CountSummary:
    """Count one shard of sentence pairs into the file `path`.

    `links` [target tokens] holds for each target piece the source position (0-based, within its sentence) to which it is linked, or
    -1. Raises ValueError for pieces outside the vocabulary, links outside the sentence and arrays that do not fit one another,
    OSError if the file cannot be written.
    """
    limits = fewstep_native.CountLimits(options.source_size, options.target_size, options.max_offset, options.max_length)
    counted = fewstep_native.count_candidates(
        os.fspath(path),
        _as_int32("source", source.values),
        as_int64("source_starts", source.starts),
        _as_int32("target", target.values),
        as_int64("target_starts", target.starts),
        _as_int32("links", links),
        limits,
    )
    return CountSummary(**counted)


def read_counts(path: str | os.PathLike[str]) -> CountSummary:
    """Return the summary of a file of `count_candidates`. Raises ValueError for an incomplete file, OSError if it cannot be
    read."""
    return CountSummary(**fewstep_native.run_totals(os.fspath(path)))


def merge_candidates(
    runs: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    options: TableOptions = TableOptions(),
) -> TableSummary:
    """Merge the counts of all shards into the table `path`. Equal sums of counts give equal bytes.

    Each row is cut to its `top` entries after all its counts were summed. Raises ValueError for files that are incomplete or were
    counted with other options, OSError for files that cannot be read or written.
    """
    paths = [os.fspath(run) for run in runs]
    described = fewstep_native.merge_candidates(
        paths, os.fspath(path), options.top, options.reserved, options.tension, options.backoff, options.vocabulary
    )
    return TableSummary(**described)


def _as_int32(name: str, values: ArrayLike) -> NDArray[np.int32]:
    """Return integers as a contiguous int32 array. Raises ValueError for values that need more bits and for other types."""
    array = np.asarray(values)
    if not np.can_cast(array.dtype, np.int32):
        array = as_int64(name, array)
        bounds = np.iinfo(np.int32)
        if array.size and (array.max() > bounds.max or array.min() < bounds.min):
            raise ValueError(f"{name}: expected integers of 32 bits, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int32)
