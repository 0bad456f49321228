"""A process for measurements that may fail, hang, or leave their device in a state of error."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any

import torch

Row = dict[str, Any]
"""A result, or the `error` and `traceback` of a failure."""
SECONDS_TO_END = 3
"""Time that a process has to print its stack before it is killed."""


class Worker:
    """Calls functions one after another in a process, which is replaced when a call ends it, blocks it or breaks the device.

    The process is a fork, so that it need not import again. The caller must not have used the device.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._process: ForkProcess | None = None
        self._connection: Connection

    def call(self, function: Callable[[], Row], seconds: float) -> Row:
        """Return the result of a picklable function, or its error after at most `seconds`."""
        process = self._process or self._start()
        try:
            self._connection.send(function)
            if not self._connection.poll(seconds):
                self._abort(process)
                return {"error": f"TimeoutError: expected a result within {seconds:.0f} s, got none"}
            row, usable = self._connection.recv()
        except (EOFError, ConnectionError):
            process.join()
            self._process = None
            return {"error": f"RuntimeError: expected a result, but the process ended with exit code {process.exitcode}"}
        if not usable:
            self.close()
        return dict(row)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> ForkProcess:
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._connection, self._device), daemon=True)
        self._process.start()
        theirs.close()
        return self._process

    def _abort(self, process: ForkProcess) -> None:
        """End the process with its stack on standard error."""
        assert process.pid is not None
        os.kill(process.pid, signal.SIGABRT)
        process.join(SECONDS_TO_END)
        self.close()


def _serve(connection: Connection, callers: Connection, device: str) -> None:
    callers.close()
    faulthandler.enable()
    while True:
        try:
            function = connection.recv()
        except EOFError:
            return
        row = _row(function)
        connection.send((row, _usable(device)))


def _row(function: Callable[[], Row]) -> Row:
    try:
        return function()
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0], "traceback": traceback.format_exc()}


def _usable(device: str) -> bool:
    """Return whether the device still works, after memory that is no longer needed is given back."""
    gc.collect()
    try:
        if device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True
