"""Longest common subsequences of rows of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fewstep.native import fewstep_native

Ints = NDArray[np.int64]


def lcs_lengths(first: Ints, second: Ints, first_lengths: Ints, second_lengths: Ints) -> Ints:
    """Return the lengths [B] of the longest common subsequences of rows of `first` [B,M] and `second` [B,N].

    All arrays are contiguous int64. Tokens beyond a row's length are ignored. Raises TypeError for arrays of another type or number
    of dimensions, and ValueError for an unequal number of rows and for lengths that exceed the rows.

    `reference.lcs_length` is the slow reference.
    """
    found: Ints = fewstep_native.lcs_lengths(first, second, first_lengths, second_lengths)
    return found
