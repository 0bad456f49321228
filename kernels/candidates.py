"""Candidate tables (Deng and Rush 2021): counted from linked sentence pairs, mapped from a file, looked up slot by slot.

A link joins slot t of the target (0-based) to position a of the source, its offset is a - t. From the links of a corpus

    P(y | x, offset) = #(x, offset, y) / #(x, offset)       x = source[a], y = target[t]
    P(a | S, t)      = #(S, t, a) / #(S, t)                 S pieces in the source

or, where few pairs show most (x, offset) never or once, smoothed as MacKay and Peto (1995) do, with a `backoff` b above 0,

    P(y | x, offset) = (#(x, offset, y) + b #(x, y) / #(x)) / (#(x, offset) + b)

and the candidates of slot t of a new source x are the pieces y with the largest  sum over s of P(y | x_s, s - t) P(s | S, t).

Shards are counted on their own (`count_candidates`); their counts are merged into one table (`merge_candidates`), whose bytes do
not depend on how the pairs were shared out. `kernels.reference.candidates` is the slow twin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.native import fewstep_native

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_VOCABULARY = bytes(32)
"""The digest of a table whose vocabulary was not told."""


class Sentences(NamedTuple):
    """Sentences one after the other: sentence i is `values[starts[i]:starts[i + 1]]`."""

    values: NDArray[Any]
    """Integers [tokens]."""
    starts: NDArray[Any]
    """[sentences + 1], from 0 to the number of tokens."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Sentences:
        """Lists of integers, joined."""
        rows = list(rows)
        values = np.array([value for row in rows for value in row], np.int64)
        return cls(values, np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)]))


@dataclass(frozen=True, kw_only=True)
class CountOptions:
    """What is counted; the same for all shards of a table."""

    source_size: int
    """Pieces of the source vocabulary, at most 2^24."""
    target_size: int
    """Pieces of the target vocabulary, at most 2^24."""
    max_offset: int = 127
    """Links between positions that are further apart are dropped, not moved."""
    max_length: int = 256
    """Pairs with more pieces on a side are left out; at most 65,535."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What becomes of the counts."""

    top: int = 40
    """Most frequent target pieces kept of each row (x, offset)."""
    reserved: int = 7
    """Target pieces below this id are counted in the rows' totals, but are no candidates."""
    backoff: float = 0.0
    """Links that P(y | x), whatever the offset, counts as in each row; its `top` pieces are kept. 0, the paper's: none."""
    tension: float = 4.0
    """The aligner's; that of the diagonal prior which stands in for (S, t) that were never seen."""
    vocabulary: bytes = NO_VOCABULARY
    """32 bytes that tell the vocabulary from others; `CandidateTables.load` compares them."""


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """How a lattice is looked up."""

    candidates: int = 64
    """K, most candidates of a slot."""
    length_window: int = 3
    """Pieces that the predicted length may be off: where no slots are told, a sentence gets as many as its longest target needs."""
    least_prior: float = 0.0
    """Positions with P(s | S, t) below this are passed over. 0 is exact; 1e-4 is a little faster."""
    threads: int = 1
    """Sentences looked up at a time. The result does not depend on it."""


@dataclass(frozen=True, kw_only=True)
class CountSummary:
    """What became of pairs and links."""

    pairs: int
    """Pairs that were counted."""
    empty: int
    """Pairs left out because a side has no pieces."""
    too_long: int
    """Pairs left out because a side is longer than `max_length`."""
    source_pieces: int
    """In the pairs that were counted."""
    target_pieces: int
    linked: int
    """Links counted."""
    unlinked: int
    """Target pieces without a link."""
    dropped: int
    """Links with too large an offset."""


@dataclass(frozen=True, kw_only=True)
class TableSummary(CountSummary):
    """The header of a table."""

    source_size: int
    target_size: int
    max_offset: int
    max_length: int
    top: int
    reserved: int
    rows: int
    """Rows (x, offset), those never seen between the offsets of a piece included; with a backoff also those of x alone."""
    entries: int
    kept: int
    """Links that the entries of rows (x, offset) account for; the other `linked - kept` were cut or lead to reserved pieces."""
    max_source: int
    """Longest source with links, in pieces."""
    cells: int
    """Cells (S, t), those between the slots of a length that were never seen included."""
    slope: float
    """Of the length line: target length ~ slope * source length + intercept, in pieces without EOS."""
    intercept: float
    tension: float
    backoff: float
    file_bytes: int
    """Size of the file."""
    vocabulary: bytes
    links: bytes
    """SHA-256 of all counts before the cut."""


class Candidates(NamedTuple):
    """The lattices of B sentences: N slots (of the sentence that has most), K candidates a slot, best first."""

    token_ids: Ints
    """[B, N, K]; -1 where a slot has fewer candidates, and past a sentence's slots. No id stands twice in a slot."""
    log_probs: Floats
    """[B, N, K] natural logarithms of what need not add up to 1 over a slot; -inf where there is no candidate."""
    num_slots: Ints
    """[B] slots of each sentence."""


def count_candidates(
    source: Sentences, target: Sentences, links: ArrayLike, path: str | os.PathLike[str], *, options: CountOptions
) -> CountSummary:
    """Count one shard of sentence pairs into the file `path`.

    `links` [target tokens] holds for each target piece the source position (0-based, within its sentence) that it is linked to, or
    -1. Raises ValueError for pieces outside the vocabulary, links outside the sentence and arrays that do not fit one another,
    OSError when the file cannot be written.
    """
    limits = fewstep_native.CountLimits(options.source_size, options.target_size, options.max_offset, options.max_length)
    counted = fewstep_native.count_candidates(
        os.fspath(path),
        narrow("source", source.values),
        integers("source_starts", source.starts),
        narrow("target", target.values),
        integers("target_starts", target.starts),
        narrow("links", links),
        limits,
    )
    return CountSummary(**counted)


def read_counts(path: str | os.PathLike[str]) -> CountSummary:
    """What a file of `count_candidates` holds. Raises ValueError for a file that is not whole, OSError when it cannot be read."""
    return CountSummary(**fewstep_native.run_totals(os.fspath(path)))


def merge_candidates(
    runs: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    options: TableOptions = TableOptions(),
) -> TableSummary:
    """Merge the counts of all shards into the table `path`. Equal sums of counts give equal bytes.

    Each row is cut to its `top` entries only when all its counts are there. Raises ValueError for runs that are not whole or were
    counted with other options, OSError for files that cannot be read or written.
    """
    paths = [os.fspath(run) for run in runs]
    described = fewstep_native.merge_candidates(
        paths, os.fspath(path), options.top, options.reserved, options.tension, options.backoff, options.vocabulary
    )
    return TableSummary(**described)


class CandidateTables:
    """A table file, mapped: loading reads its header and nothing else, and processes share its memory."""

    def __init__(self, path: str | os.PathLike[str], *, vocabulary: bytes | None = None) -> None:
        self.path = Path(path)
        self._native = fewstep_native.CandidateTables(os.fspath(path))
        self.summary = TableSummary(**self._native.describe())
        if vocabulary is not None and vocabulary != self.summary.vocabulary:
            raise ValueError(
                f"{self.path}: expected candidate tables of the vocabulary {vocabulary.hex()[:16]}, got those of "
                f"{self.summary.vocabulary.hex()[:16]}; build the tables with the vocabulary that they are used with"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, vocabulary: bytes | None = None) -> CandidateTables:
        """The tables in the file `path`.

        `vocabulary` is the digest that they must have been made with. Raises ValueError when it is another one, and for a file that
        is no table, was written by another version, is cut off or altered in its header; OSError when it cannot be read.
        """
        return cls(path, vocabulary=vocabulary)

    @property
    def native(self) -> fewstep_native.CandidateTables:
        """What other kernels take."""
        return self._native

    def __reduce__(self) -> tuple[type[CandidateTables], tuple[Path]]:
        return type(self), (self.path,)

    def verify(self) -> None:
        """Read all of the file. Raises ValueError when a byte of it is not what was written.

        Without this, damage behind the header shows as a ValueError when a look-up meets it, or as other counts.
        """
        self._native.verify()

    def length(self, source_length: int) -> int:
        """Predicted target length L with EOS: round(slope * S + intercept + 1), halves to even."""
        return int(self._native.length(source_length))

    def words(self, source_length: int, window: int = 0) -> tuple[int, int]:
        """Fewest and most target pieces, EOS not counted, of targets with L - window to L + window pieces with EOS.

        At least one piece; none for an empty source.
        """
        least, most = self._native.length_range(source_length, window)
        return int(least), int(most)

    def row(self, piece: int, offset: int) -> tuple[list[tuple[int, int]], int]:
        """The entries (target piece, count) of row (x, offset), best first, and the links of the whole row."""
        entries, total = self._native.row(piece, offset)
        return entries, int(total)

    def row_of(self, piece: int) -> tuple[list[tuple[int, int]], int]:
        """The same of all offsets together. Raises ValueError for tables without a backoff."""
        entries, total = self._native.lexical_row(piece)
        return entries, int(total)

    def prior(self, source_length: int, slot: int) -> dict[int, int]:
        """#(S, t, a) by position a, ascending; nothing for a cell that has no link."""
        return dict(self._native.prior(source_length, slot))


def lattice_candidates(
    tables: CandidateTables,
    source_ids: ArrayLike,
    source_lengths: ArrayLike,
    *,
    num_slots: ArrayLike | None = None,
    options: CandidateOptions = CandidateOptions(),
) -> Candidates:
    """The K most probable target pieces of every slot of B sentences.

    `source_ids` [B, S] is padded (with anything), `source_lengths` [B] counts pieces without EOS. `num_slots` [B] is the number of
    target pieces, EOS not counted; by default what the length line and `options.length_window` ask for. Equal probabilities are
    ordered by id. A position s counts with the P(s | S, t) of the table; where (S, t) has no link, with that of the nearest S'
    within 3 (the shorter of two) that has one at a position of the sentence; else with a diagonal prior of the table's tension.

    Raises ValueError for arrays that do not fit, pieces outside the source vocabulary and damaged tables.
    """
    ids, lengths = integers("source_ids", source_ids), integers("source_lengths", source_lengths)
    if ids.ndim != 2 or lengths.shape != ids.shape[:1]:
        raise ValueError(f"expected source_ids [B, S] and source_lengths [B], got shapes {ids.shape} and {lengths.shape}")
    if num_slots is None:
        slots = np.array([tables.words(int(length), options.length_window)[1] for length in lengths], np.int64)
    else:
        slots = integers("num_slots", num_slots)
    if slots.shape != lengths.shape or (slots.size and slots.min() < 0) or options.candidates < 1:
        raise ValueError(
            f"expected num_slots [B] of at least 0 and candidates of at least 1, got shape {slots.shape} and {options.candidates}"
        )
    shape = (len(lengths), int(slots.max(initial=0)), options.candidates)
    found = Candidates(np.empty(shape, np.int64), np.empty(shape, np.float64), slots)
    tables._native.look_up(ids, lengths, slots, found.token_ids, found.log_probs, options.least_prior, options.threads)
    return found


def integers(name: str, values: ArrayLike) -> Ints:
    """Integers in 64 bits, contiguous. Raises ValueError for what are no integers."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers, got {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def narrow(name: str, values: ArrayLike) -> NDArray[np.int32]:
    """Integers in 32 bits, contiguous. Raises ValueError for values that need more and for what are no integers."""
    array = np.asarray(values)
    if not np.can_cast(array.dtype, np.int32):
        array = integers(name, array)
        bounds = np.iinfo(np.int32)
        if array.size and (array.max() > bounds.max or array.min() < bounds.min):
            raise ValueError(f"{name}: expected integers of 32 bits, got {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int32)
