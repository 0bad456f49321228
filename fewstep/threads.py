"""The threads of a process: their number if the caller states none, and how those of OpenMP wait for work."""

from __future__ import annotations

import os
from collections.abc import Mapping

WAIT_POLICY = "OMP_WAIT_POLICY"
MARK = "FEWSTEP_WAIT_POLICY"
PASSIVE = {WAIT_POLICY: "passive", MARK: "default"}
"""Variables of a process whose user has not chosen how threads of OpenMP wait. `MARK` says that the first is not the user's."""


def default_threads() -> int:
    """Return the number of processors that this process may use, at most `OMP_NUM_THREADS` if that variable holds a number."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, max_threads() or available)


def max_threads() -> int | None:
    """Return the user's limit of threads, `OMP_NUM_THREADS`, or None if it is not set to a number."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(stated)) if stated.isdecimal() else None


def wait_passively() -> None:
    """Let the threads of OpenMP sleep while they wait, in this process and those that it starts, unless the user has chosen.

    Call it before torch is loaded, whose OpenMP reads the variable once. By default threads spin, and so take the processor from
    the thread that they wait for: with two threads on two cores beside another process, a training took five times as long.
    """
    if WAIT_POLICY not in os.environ:
        os.environ.update(PASSIVE)


def without_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what `wait_passively` added, for other programs."""
    ours = PASSIVE if MARK in environment else {}
    return {name: value for name, value in environment.items() if name not in ours}
