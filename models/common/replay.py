"""Programs of fixed shapes, which a GPU repeats without waiting for the host."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

from models.common.inference import MEMORY_ERRORS

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")
R = TypeVar("R")

WARM_UP_CALLS = 2
"""Calls before a capture: libraries choose algorithms and allocate workspaces in the first ones."""
KEPT_PROGRAMS = 16
"""Programs that are kept; each holds the buffers of its shapes."""


class Replay:
    """A function of tensors that stay where they are, which it reads and writes in place.

    On a GPU the first call warms up and captures the function as a CUDA graph, which all calls replay: one launch instead of
    hundreds. The function must therefore neither wait for the device nor depend on values of tensors in its control flow.
    `restore` brings back the state of the buffers before the warm-up; a function that goes on from a later state is prepared first.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, restore: Callable[[], None]) -> None:
        self._function, self._device, self._restore = function, device, restore
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the function once."""
        self.prepare()
        if self._graph is None:
            self._function()
        else:
            self._graph.replay()

    def prepare(self) -> None:
        """Capture the function on a GPU, unless it is captured."""
        if self._device.type == "cuda" and self._graph is None:
            self._graph = self._captured()

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

    def call(self, key: K, function: Callable[[P], R]) -> R:
        """Return `function` of the program of `key`, which is made if it is not there.

        If memory does not suffice, all programs are dropped before the error is raised, so that a smaller batch finds their memory.
        """
        try:
            return function(self._program(key))
        except MEMORY_ERRORS:
            self._kept.clear()
            gc.collect()
            raise

    def _program(self, key: K) -> P:
        if key not in self._kept:
            while len(self._kept) >= KEPT_PROGRAMS:
                self._kept.popitem(last=False)
                gc.collect()  # programs refer to themselves, so that the end of the last reference frees no memory
            self._kept[key] = self._make(key)
        self._kept.move_to_end(key)
        return self._kept[key]
