"""Programs of fixed shapes, which a GPU repeats without waiting for the host."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")

WARM_UP_CALLS = 2
"""Calls before a capture: libraries choose algorithms and allocate workspaces in the first ones."""
KEPT_PROGRAMS = 16
"""Programs that are kept; each holds the buffers of its shapes."""


class Replay:
    """A function of tensors that stay where they are, which it reads and writes in place.

    On a GPU its second call is captured as a CUDA graph, which the later ones replay: one launch instead of hundreds. The function
    must therefore neither wait for the device nor depend on values of tensors in its control flow. It must be possible to call it
    twice from the same state of its buffers; `restore` brings that state back after the warm-up.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, restore: Callable[[], None]) -> None:
        self._function, self._device, self._restore = function, device, restore
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the function once."""
        if self._device.type != "cuda":
            self._function()
            return
        if self._graph is None:
            self._graph = self._captured()
        self._graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                self._function()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._restore()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._function()
        return graph


class Programs(Generic[K, P]):
    """The most recently used programs, by their keys."""

    def __init__(self, make: Callable[[K], P]) -> None:
        self._make = make
        self._kept: OrderedDict[K, P] = OrderedDict()

    def __getitem__(self, key: K) -> P:
        """Return the program of `key`, which is made if it is not there."""
        if key not in self._kept:
            while len(self._kept) >= KEPT_PROGRAMS:
                self._kept.popitem(last=False)
            self._kept[key] = self._make(key)
        self._kept.move_to_end(key)
        return self._kept[key]
