"""The bandwidth of reading and the peak of 8-bit products of this machine, measured with torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

READ_MIB = 128
"""Memory that is read over and over: more than a core's caches, and about the weights of two networks of 8 bits."""
ROWS = 1024
"""Rows and columns of the products."""
TRIALS = 9


class Limits(NamedTuple):
    """The limits of a number of threads."""

    bandwidth: float
    """Bytes a second."""
    peak: float
    """8-bit multiply-adds a second."""


def fastest(call: Callable[[], object]) -> float:
    """Return the shortest of several times of a call, in seconds. The first call is not counted."""
    call()
    times = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(threads: int) -> Limits:
    """Return the limits of `threads` threads."""
    left = torch.ones(ROWS, ROWS, dtype=torch.int8)
    torch.set_num_threads(threads)
    products = fastest(lambda: torch._int_mm(left, left))
    torch.set_num_threads(1)
    parts = [part.chunk(2) for part in torch.ones(READ_MIB * 2**18).chunk(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = fastest(lambda: list(pool.map(lambda halves: torch.dot(*halves), parts)))
    return Limits(READ_MIB * 2**20 / seconds, ROWS**3 / products)
