"""Delay SIGTERM and SIGINT until state is saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_noted = threading.Event()
"""Set when this process received SIGTERM after `note_sigterm`."""


def note_sigterm() -> None:
    """Let the next SIGTERM be noted for `delayed_signals` in threads other than the main thread. A second one acts at once.

    Call this in the main thread.
    """
    previous = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: Any) -> None:
        _noted.set()
        signal.signal(signal.SIGTERM, previous)

    _noted.clear()
    signal.signal(signal.SIGTERM, note)


@contextmanager
def delayed_signals() -> Iterator[Callable[[], bool]]:
    """Delay the first signal until the block ends. Yields a function that returns whether a signal was received.

    A second signal acts at once. In threads other than the main thread, only a SIGTERM after `note_sigterm` is delayed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _noted.is_set
        return
    received: list[int] = []
    previous: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def note(number: int, frame: Any) -> None:
        received.append(number)
        restore()

    for number in SIGNALS:
        previous[number] = signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        restore()
        if received:
            signal.raise_signal(received[0])
