"""The number of threads that native code uses if the caller states none."""

from __future__ import annotations

import os

__all__ = ["default_threads"]


def default_threads() -> int:
    """Return the number of processors that this process may use, at most `OMP_NUM_THREADS` if that variable holds a number."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, max(1, int(stated))) if stated.isdecimal() else available
