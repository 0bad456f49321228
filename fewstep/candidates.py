"""Candidate tables (Deng and Rush 2021): mapping of a table file and look-up of candidates, slot by slot.

A link joins slot t of the target (0-based) to position a of the source; its offset is a - t. From the links of a corpus

    P(y | x, offset) = #(x, offset, y) / #(x, offset)       x = source[a], y = target[t]
    P(a | S, t)      = #(S, t, a) / #(S, t)                 S pieces in the source

or, if most (x, offset) occur rarely, smoothed as in MacKay and Peto (1995) with a `backoff` b above 0,

    P(y | x, offset) = (#(x, offset, y) + b #(x, y) / #(x)) / (#(x, offset) + b)

The candidates of slot t of a new source x are the pieces y with the largest  sum over s of P(y | x_s, s - t) P(s | S, t).

`kernels.candidates` counts the tables; `kernels.reference.candidates` is the slow reference.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewstep.native import fewstep_native

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CandidateOptions:
    """Options of a look-up."""

    candidates: int = 64
    """Maximum number of candidates per slot (K)."""
    length_window: int = 3
    """Tolerance of the predicted length in pieces: unless `num_slots` is given, a sentence gets the slots of its longest target."""
    min_prior: float = 0.0
    """Positions with P(s | S, t) below this are skipped. 0 is exact; 1e-4 is a little faster."""
    smoothing: bool = True
    """Slots (S, t) that were never linked take another prior. Without it, as in the paper, they have no candidates."""
    threads: int = 1
    """Sentences looked up at the same time. The result does not depend on it."""


@dataclass(frozen=True, kw_only=True)
class CountSummary:
    """Numbers of pairs, pieces and links."""

    pairs: int
    """Pairs that were counted."""
    empty: int
    """Pairs left out because one side has no pieces."""
    too_long: int
    """Pairs left out because one side is longer than `max_length`."""
    source_pieces: int
    """Source pieces of the counted pairs."""
    target_pieces: int
    linked: int
    """Links counted."""
    unlinked: int
    """Target pieces without a link."""
    dropped: int
    """Links whose offset is too large."""


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
    """Rows (x, offset), including unseen ones between the offsets of a piece; with a backoff also the rows x."""
    entries: int
    kept: int
    """Links that the entries of rows (x, offset) account for; the other `linked - kept` were cut or lead to reserved pieces."""
    max_source: int
    """Length of the longest source with links, in pieces."""
    cells: int
    """Cells (S, t), including unseen ones between the slots of a length."""
    slope: float
    """Slope of the length line: target length ~ slope * source length + intercept, in pieces without EOS."""
    intercept: float
    tension: float
    backoff: float
    file_bytes: int
    """Size of the file."""
    vocabulary: bytes
    links: bytes
    """SHA-256 of all counts before the cut."""


class Candidates(NamedTuple):
    """The lattices of B sentences: N slots (the maximum over the sentences) with K candidates each, best first."""

    token_ids: Ints
    """[B, N, K]; -1 where a slot has fewer candidates and past a sentence's slots. The ids of a slot are distinct."""
    log_probs: Floats
    """[B, N, K] natural logarithms of scores that need not sum to 1 over a slot; -inf where there is no candidate."""
    num_slots: Ints
    """[B] slots of each sentence."""


class CandidateTables:
    """A table file, memory-mapped: loading reads only its header, and processes share its memory."""

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
        """Map the tables in the file `path`.

        `vocabulary` is the expected digest of the vocabulary. Raises ValueError if the tables have another one, and for a file that
        is not a table, was written by another version, is truncated or has an altered header; OSError if it cannot be read.
        """
        return cls(path, vocabulary=vocabulary)

    @property
    def native(self) -> fewstep_native.CandidateTables:
        """The native object, which networks take."""
        return self._native

    def __reduce__(self) -> tuple[type[CandidateTables], tuple[Path]]:
        return type(self), (self.path,)

    def verify(self) -> None:
        """Read the whole file. Raises ValueError if a byte of it was altered.

        Without this check, damage behind the header shows as a ValueError when a look-up meets it, or as other counts.
        """
        self._native.verify()

    def length(self, source_length: int) -> int:
        """Return the predicted target length L with EOS: round(slope * S + intercept + 1), half to even."""
        return int(self._native.length(source_length))

    def length_range(self, source_length: int, window: int = 0) -> tuple[int, int]:
        """Return the minimum and maximum target pieces, without EOS, of targets of L - window to L + window pieces with EOS.

        Both are at least 1, and 0 for an empty source.
        """
        min_length, max_length = self._native.length_range(source_length, window)
        return int(min_length), int(max_length)

    def row(self, piece: int, offset: int) -> tuple[list[tuple[int, int]], int]:
        """Return the entries (target piece, count) of row (x, offset), best first, and the links of the whole row."""
        entries, total = self._native.row(piece, offset)
        return entries, int(total)

    def lexical_row(self, piece: int) -> tuple[list[tuple[int, int]], int]:
        """Return the entries and links of a piece over all offsets. Raises ValueError for tables without a backoff."""
        entries, total = self._native.lexical_row(piece)
        return entries, int(total)

    def prior(self, source_length: int, slot: int) -> dict[int, int]:
        """Return #(S, t, a) by position a, ascending; empty for a cell without links."""
        return dict(self._native.prior(source_length, slot))


def lattice_candidates(
    tables: CandidateTables,
    source_ids: ArrayLike,
    source_lengths: ArrayLike,
    *,
    num_slots: ArrayLike | None = None,
    options: CandidateOptions = CandidateOptions(),
) -> Candidates:
    """Return the K most probable target pieces of every slot of B sentences.

    `source_ids` [B, S] is padded (with anything), `source_lengths` [B] counts pieces without EOS. `num_slots` [B] is the number of
    target pieces without EOS, by default the maximum that the length line and `options.length_window` give. Equal probabilities are
    ordered by id. A position s counts with the P(s | S, t) of the table; where (S, t) has no link, with that of the nearest S'
    within 3 (the shorter of two) that has one at a position of the sentence; else with a diagonal prior of the table's tension.
    Without `options.smoothing` such a slot has no candidates.

    Raises ValueError for arrays that do not fit, pieces outside the source vocabulary and damaged tables.
    """
    ids, lengths = as_int64("source_ids", source_ids), as_int64("source_lengths", source_lengths)
    if ids.ndim != 2 or lengths.shape != ids.shape[:1]:
        raise ValueError(f"expected source_ids [B, S] and source_lengths [B], got shapes {ids.shape} and {lengths.shape}")
    if num_slots is None:
        slots = np.array([tables.length_range(int(length), options.length_window)[1] for length in lengths], np.int64)
    else:
        slots = as_int64("num_slots", num_slots)
    if slots.shape != lengths.shape or (slots.size and slots.min() < 0) or options.candidates < 1:
        raise ValueError(
            f"expected num_slots [B] of at least 0 and candidates of at least 1, got shape {slots.shape} and {options.candidates}"
        )
    shape = (len(lengths), int(slots.max(initial=0)), options.candidates)
    found = Candidates(np.empty(shape, np.int64), np.empty(shape, np.float64), slots)
    tables.native.look_up(ids, lengths, slots, found.token_ids, found.log_probs, options.min_prior, options.threads)
    if not options.smoothing:
        for row, length in enumerate(lengths.tolist()):
            unseen = [slot for slot in range(int(slots[row])) if next(iter(tables.prior(length, slot)), length) >= length]
            found.token_ids[row, unseen], found.log_probs[row, unseen] = -1, -np.inf
    return found


def as_int64(name: str, values: ArrayLike) -> Ints:
    """Return integers as a contiguous int64 array. Raises ValueError for other types."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers, got {array.dtype}")
    return np.ascontiguousarray(array, np.int64)
