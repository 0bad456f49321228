"""The time of the loss of graphs compared with that of a copy of the same memory."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

import kernels
from benchmarks.gpu.agreement import graph_scores
from benchmarks.gpu.timing import out_of_time, synchronize
from kernels.reference import dag as reference


def measure(device: str, shape: tuple[int, int, int], rounds: int, deadline: float) -> dict[str, Any]:
    """Return the milliseconds of value and gradients for [B,M,L], natively and by the recurrence in torch, and of a copy of as many
    bytes as they read and write at least."""
    given = graph_scores(device, *shape)
    sides = {"native": kernels.dag_log_likelihood, "torch": reference.dag_log_likelihood}
    copies = [(part.detach(), torch.empty_like(part)) for part in given[:2]]
    times: dict[str, list[float]] = {name: [] for name in (*sides, "copy")}
    for turn in range(rounds + 1):
        for name in times:
            began = time.perf_counter()
            if name == "copy":
                for source, target in copies:
                    target.copy_(source)
            else:
                torch.autograd.grad(sides[name](*given).sum(), given[:2])
            synchronize(device)
            if turn:
                times[name].append(1000 * (time.perf_counter() - began))
        if turn and out_of_time(deadline):
            break
    return {"shape": shape, "ms": {name: statistics.median(taken) for name, taken in times.items()}, "rounds": times}
