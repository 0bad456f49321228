"""The longest common subsequence by its recurrence; see `lcs.py`."""

from __future__ import annotations

from collections.abc import Sequence


def lcs_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return c(|a|, |b|), with c as in `csrc/ops/align/lcs.h`."""
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return lcs_length(a[:-1], b[:-1]) + 1
    return max(lcs_length(a[:-1], b), lcs_length(a, b[:-1]))
