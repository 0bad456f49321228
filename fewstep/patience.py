"""Waiting for the other side of a connection, with an end.

The time limits of sockets begin again with each byte, so that a server that sends one now and then keeps a call waiting for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TypeVar

WAIT_SECONDS = 15.0
"""Seconds for which the other side may let this one wait."""
MIN_RATE = 1000
"""Bytes per second of a file below which these seconds run out."""
MIN_JSON_RATE = 1 << 15
"""The same of JSON, which is held in memory."""

T = TypeVar("T")


class GivenUpError(OSError):
    """The other side is not asked again, since each try would take as long."""


class SlowError(GivenUpError):
    """The other side lets this one wait for too long."""


@dataclass
class Patience:
    """The seconds for which the other side may still let this one wait."""

    seconds: float


def waited_for(items: Generator[T, None, None], patience: Patience) -> Generator[T, None, None]:
    """Yield the same items, which another thread takes from `items`. Raises SlowError once there is no patience left.

    (A server that sends a byte a minute keeps every call of a library waiting. The thread is left to itself then, and ends with the
    call.)
    """
    found: Queue[tuple[list[T], BaseException | None]] = Queue(1)
    over = threading.Event()

    def take() -> None:
        end: BaseException | None = None
        try:
            with closing(items):
                for item in items:
                    if over.is_set():
                        return
                    found.put(([item], None))
        except BaseException as error:
            end = error
        if not over.is_set():
            found.put(([], end))

    threading.Thread(target=take, name="transfer", daemon=True).start()
    try:
        while True:
            started = time.monotonic()
            try:
                taken, error = found.get(timeout=max(0.0, patience.seconds))
            except Empty:
                raise SlowError("the other side lets this one wait") from None
            patience.seconds -= time.monotonic() - started
            if error is not None:
                raise error
            if not taken:
                return
            yield taken[0]
    finally:
        over.set()
        with suppress(Empty):
            found.get_nowait()  # so that the other thread waits for nobody


def flowing(blocks: Iterator[bytes], patience: Patience, rate: int = MIN_RATE) -> Iterator[bytes]:
    """Yield the same blocks, each of which gives back a second for each `rate` bytes, up to WAIT_SECONDS.

    Raises SlowError for a sender that is slower for longer.
    """
    size = 0
    try:
        for block in blocks:
            size += len(block)
            patience.seconds = min(WAIT_SECONDS, patience.seconds + len(block) / rate)
            yield block
    except SlowError as error:
        raise SlowError(f"expected at least {rate:,} bytes a second, got {size:,} bytes and then too few") from error
