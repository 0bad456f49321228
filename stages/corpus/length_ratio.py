"""The usual ratio of the lengths of both sides, by which the ratio filter knows a pair of languages.

An English sentence has about as many characters as a German one, three times as many as a Chinese one and twice as many as a Korean
one. Lengths are therefore compared after division by the median of the text's own ratios.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SAMPLE = 20_000
"""Pairs at the beginning of a text whose median is taken."""


def sampled_rows(batches: Iterable[int]) -> int:
    """Return the number of rows in the first batches of a text that hold `SAMPLE` rows, from the numbers of rows of all batches."""
    rows = 0
    for batch in batches:
        rows += batch
        if rows >= SAMPLE:
            break
    return rows


def usual_ratio(tables: Iterable[pa.Table]) -> float:
    """Return the median of target to source lengths, in characters, over the first `SAMPLE` pairs without an empty side; 1 for a
    text without pairs. The median of a few pairs is uncertain, but 1 would drop most pairs of two scripts."""
    ratios = np.concatenate([*map(_ratios, tables), np.empty(0)])[:SAMPLE]
    return float(np.median(ratios)) if len(ratios) else 1.0


def _ratios(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    source, target = (pc.utf8_length(table[side]).to_numpy().astype(np.float64) for side in ("source", "target"))
    both = (source > 0) & (target > 0)
    return np.asarray(target[both] / source[both])
