"""Masks of dropout, one unit at a time; see `kernels/csrc/ops/training/dropout_mask.h`."""

from __future__ import annotations

import numpy as np

ROW = 2**16
"""Units of `kernels.dropout` that share a row of the mask."""


def factor(probability: float, seed: int, row: int, position: int) -> float:
    """Return the factor of a unit of a row: 1 / (1 - probability) if it is kept, else 0."""
    probability = float(np.float32(probability))
    key = (seed + (row + 1) * 0x9E3779B97F4A7C15) % 2**64
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    key ^= key >> 31
    bits = (position + key) % 2**32
    bits = (bits ^ bits >> 16) * 0x7FEB352D % 2**32 ^ key >> 32
    bits = (bits ^ bits >> 15) * 0x846CA68B % 2**32
    bits ^= bits >> 16
    return 1.0 / (1.0 - probability) if bits >= round(probability * 2**32) else 0.0
