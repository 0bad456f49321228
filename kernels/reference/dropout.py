"""Masks of dropout; see `kernels/csrc/ops/training/dropout_mask.h`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ROW = 2**16
"""Units of `kernels.dropout` that share a row of the mask."""
WORD = 2**32


def factors(probability: float, seed: int, row: int, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the factors [N] of units of a row, by their positions [N]: 1 / (1 - probability) of those that are kept, else 0."""
    probability = float(np.float32(probability))
    key = (seed + (row + 1) * 0x9E3779B97F4A7C15) % 2**64
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    key ^= key >> 31
    bits: NDArray[Any] = (positions.astype(np.uint64) + key % WORD) % WORD
    bits = (bits ^ bits >> 16) * 0x7FEB352D % WORD ^ key // WORD
    bits = (bits ^ bits >> 15) * 0x846CA68B % WORD
    bits ^= bits >> 16
    return np.where(bits >= round(probability * WORD), 1.0 / (1.0 - probability), 0.0)
