"""The limits of a device: bandwidth, products, and launches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.origin import machine

TRIALS = 9
SIZES = {"cuda": (2**30, 8192, 1000), "cpu": (2**24, 128, 100)}
"""Bytes of a copy, rows and columns of a product, and the number of launches."""


def has_gpu() -> dict[str, Any]:
    return {"found": torch.cuda.is_available()}


def measure(device: str) -> dict[str, Any]:
    """Return the name of a device, the bytes a second that a copy reads and writes, the multiply-adds a second of products by
    precision, and the seconds of a small operation that the host launches, and that a captured graph launches (None on a CPU)."""
    size, rows, launches = SIZES[device]
    source, target = torch.empty((2, size), dtype=torch.uint8, device=device)
    return {
        "card": torch.cuda.get_device_name() if device == "cuda" else machine(),
        "bandwidth": 2 * size / fastest(lambda: target.copy_(source), device),
        "products": {name: products(name, rows, device) for name in ("float32", "float16", "bfloat16")},
        "launch": launched(launches, device),
        "replay": replayed(launches, device) if device == "cuda" else None,
    }


def products(precision: str, rows: int, device: str) -> float:
    """Return the multiply-adds a second of a product of two random square matrices; a GPU is faster with constant ones."""
    matrix = torch.randn((rows, rows), dtype=getattr(torch, precision), device=device)
    result = torch.empty_like(matrix)
    return rows**3 / fastest(lambda: torch.mm(matrix, matrix, out=result), device)


def launched(count: int, device: str) -> float:
    """Return the time of a small operation of many in a row."""
    return fastest(lambda: add(torch.zeros(32, device=device), count), device) / count


def replayed(count: int, device: str) -> float:
    """Return the time of a small operation of many in a captured graph."""
    values = torch.zeros(32, device=device)
    graph = torch.cuda.CUDAGraph()
    add(values, 1)
    with torch.cuda.graph(graph):
        add(values, count)
    return fastest(graph.replay, device) / count


def add(values: torch.Tensor, count: int) -> None:
    for _ in range(count):
        values.add_(1)


def fastest(call: Callable[[], object], device: str) -> float:
    """Return the shortest of several times of a call, in seconds. The first call is not counted."""
    times = []
    for _ in range(TRIALS + 1):
        synchronize(device)
        began = time.perf_counter()
        call()
        synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def out_of_time(deadline: float) -> bool:
    """Return whether `deadline`, by the monotonic clock that all processes share, has passed."""
    return time.monotonic() > deadline
