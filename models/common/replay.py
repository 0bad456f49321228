"""Functions on buffers of fixed shapes, which a GPU repeats without waiting for the host."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch

from models.common import buffers
from models.common.inference import MEMORY_ERRORS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")

WARM_UP_CALLS = 2
"""Calls before a capture: libraries choose algorithms and allocate workspaces in the first ones."""
KEPT_RUNNERS = 16
"""Runners that are kept on a GPU; each holds the buffers of its shapes."""


class Replay:
    """A function of tensors that stay where they are, which it reads and writes in place.

    On a GPU the first call warms up and captures the function as a CUDA graph, which all calls replay: one launch instead of
    hundreds. The function must therefore neither wait for the device nor depend on values of tensors in its control flow.
    `restore` brings back the state of the buffers before the warm-up; a function that goes on from a later state is prepared first.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, restore: Callable[[], None]) -> None:
        self._function = function
        self._device = device
        self._restore = restore
        self._captured: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the function once."""
        self.prepare()
        if self._captured is None:
            self._function()
        else:
            self._captured.replay()

    def prepare(self) -> None:
        """Capture the function on a GPU, unless it is captured."""
        if self._device.type == "cuda" and self._captured is None:
            self._captured = self._capture()

    def _capture(self) -> torch.cuda.CUDAGraph:
        # Warm-up calls run on a stream of their own: the capture must not find work of theirs on its stream.
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                self._function()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._restore()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            self._function()
        return captured


class RunnerCache(Generic[K, V]):
    """The most recently used runners, by their keys: objects with the buffers, and on a GPU the captures, of one size."""

    def __init__(self, make: Callable[[K], V], device: torch.device) -> None:
        """On a CPU, where nothing is captured, runners are made for each call: buffers of the exact size are cheaper than rounded
        ones that stay."""
        self._make = make
        self._max_kept = KEPT_RUNNERS if buffers.captures(device) else 0
        self._kept: OrderedDict[K, V] = OrderedDict()

    def call(self, key: K, function: Callable[[V], R]) -> R:
        """Return `function` of the runner of `key`, which is made if it is not there.

        If memory does not suffice, all runners are dropped before the error is raised, so that a smaller batch finds their memory.
        """
        if not self._max_kept:
            return function(self._make(key))
        try:
            return function(self._runner(key))
        except MEMORY_ERRORS:
            self._kept.clear()
            gc.collect()
            raise

    def _runner(self, key: K) -> V:
        if key not in self._kept:
            while len(self._kept) >= self._max_kept:
                self._kept.popitem(last=False)
                gc.collect()  # runners refer to themselves, so that the end of the last reference frees no memory
            self._kept[key] = self._make(key)
        self._kept.move_to_end(key)
        return self._kept[key]
