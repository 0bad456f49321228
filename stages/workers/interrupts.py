"""SIGTERM and SIGINT held back until state is saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def held_back() -> Iterator[Callable[[], bool]]:
    """Hold back the first signal until the block ends; yields a function that tells whether one has come.

    A second signal acts at once. In a thread other than the main one nothing is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: list[int] = []
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def note(number: int, frame: Any) -> None:
        came.append(number)
        restore()

    for number in SIGNALS:
        previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(came)
    finally:
        restore()
        if came:
            signal.raise_signal(came[0])
