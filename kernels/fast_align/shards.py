"""EM as map and reduce: the counts of a shard, the probabilities from the counts of all shards, and the data exchanged between
them.

In each iteration a shard sends a count for each of its cells (12 bytes) and three sums, and receives the cells' probabilities (8
bytes) and the tension. Counts and sums are exact, so that links and models are bit-identical for any sharding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fewstep.native import fewstep_native as native
from kernels.fast_align.em import Sums
from kernels.fast_align.model import AlignmentModel
from kernels.fast_align.options import AlignOptions

if TYPE_CHECKING:
    from fewstep_native import F64, I64, U32, U64, Aligner, Bitext

UNSEEN = 1e-9
"""Probability of every cell in the first pass, and of cells that a model does not have."""

RANGE_CELLS = 1 << 25
"""Cells whose counts a reducer holds at once (12 bytes each), unless a single row has more."""


class Cells(NamedTuple):
    """Word pairs that have a probability, by rows: row 0 is the null word, row e + 1 the word e of the explaining side."""

    starts: U64
    """The start of each row, and the end of the last one."""
    columns: U32
    """Words of the explained side; ascending in each row of the whole, in order of first appearance in those of a shard."""


class Counts(NamedTuple):
    """Expected counts of a shard's cells: (high * 2^64 + low) / 2^62."""

    low: U64
    high: U32


class Part(NamedTuple):
    """The input of a reducer from one shard."""

    starts: U64
    """The starts of its cells' rows."""
    offsets: U32
    """The positions of its cells in the rows of the whole."""
    counts: Counts


def numbered_text(source: tuple[I64, U32], target: tuple[I64, U32], source_size: int, target_size: int) -> Bitext:
    """Return a shard whose words are numbers: for each side the starts of its sentences (and the end of the last) and all its
    words.

    Raises ValueError for a number that is not below the size of its side.
    """
    text = native.Bitext()
    text.add_ids(*source, *target, source_size, target_size)
    return text


def shard_aligner(text: Bitext, options: AlignOptions, tension: float) -> Aligner:
    """Return a shard that is ready for passes; its cells have the same order each time."""
    return native.Aligner(text, options.reverse, options.native(), tension, keep_columns=True, threads=options.threads)


def cells_of(aligner: Aligner) -> Cells:
    return Cells(*native.aligner_cells(aligner))


def merge_cells(shards: Sequence[Cells]) -> Cells:
    """Return the cells of all shards."""
    return Cells(*native.merge_cells([shard.starts for shard in shards], [shard.columns for shard in shards]))


def cell_offsets(whole: Cells, shard: Cells) -> U32:
    """Return the positions of a shard's cells in the rows of the whole."""
    return native.cell_offsets(*whole, *shard)


def take(aligner: Aligner, whole_starts: U64, offsets: U32, t: F64) -> None:
    """Give a shard its probabilities, taken from those of the whole. Without them it is in the first pass."""
    native.aligner_take_probabilities(aligner, whole_starts, offsets, t)


def expect(aligner: Aligner, threads: int) -> tuple[Counts, Sums]:
    """Run the E-step of a shard."""
    sums = Sums.of(aligner.expect(threads))
    return Counts(*native.aligner_counts(aligner)), sums


def maximise(whole_starts: U64, parts: Sequence[Part], options: AlignOptions, t: F64) -> None:
    """Run the M-step in ranges of rows, so that memory stays bounded: fills `t` for all cells of the whole."""
    for first, last in row_ranges(whole_starts, RANGE_CELLS):
        starts = whole_starts[first : last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        low, high = np.zeros(end - begin, np.uint64), np.zeros(end - begin, np.uint32)
        for part in parts:
            rows = np.ascontiguousarray(part.starts[first : last + 1])
            cut = slice(int(rows[0]), int(rows[-1]))
            native.add_counts(starts, rows, part.offsets[cut], part.counts.low[cut], part.counts.high[cut], low, high)
        native.maximise_rows(starts, low, high, options.native(), t[begin:end], options.threads)


def row_ranges(starts: U64, cells: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) of rows of at most `cells` cells, or of one row that has more."""
    first = 0
    rows = len(starts) - 1
    while first < rows:
        last = int(np.searchsorted(starts, int(starts[first]) + cells, side="right")) - 1
        last = min(max(last, first + 1), rows)
        yield first, last
        first = last


def model_of(whole: Cells, t: F64, options: AlignOptions, tension: float, length_ratio: float, words: Bitext) -> AlignmentModel:
    """Return the model of all shards; `words` is a text that holds its words in order, empty for a text of numbers."""
    made = native.model_of_cells(*whole, t, options.native(), options.reverse, tension, length_ratio, words)
    return AlignmentModel(made)


def length_ratio(sizes: Sequence[tuple[int, int, int]]) -> float:
    """Return the mean over pairs of target words per source word; `sizes` are (target words, source words, pairs of that size)."""
    return native.length_ratio(sizes)
