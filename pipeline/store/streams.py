"""Byte streams over a network: blocks, their digests, and retries."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

import durable
from pipeline.credentials import masked
from stages.errors import FULL

BLOCK_BYTES = 1 << 20
TRIES = 3
MIN_RATE = 1000
"""Bytes per second below which a transfer is given up: those of a block, on average."""
PAUSE_SECONDS = 0.5
"""Pause before the second try. Each further pause is four times as long."""
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

T = TypeVar("T")


class DamagedError(OSError):
    """The bytes that were read differ from the bytes that were written."""


class SlowError(OSError):
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


def flowing(blocks: Iterator[bytes], patience: Patience, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the same blocks, for which `patience` is renewed after each `block_bytes`. Raises SlowError for fewer than MIN_RATE
    bytes a second."""
    size, limit = 0, block_bytes / MIN_RATE
    patience.seconds = limit
    try:
        for block in blocks:
            size += len(block)
            if size >= block_bytes:
                size, patience.seconds = 0, limit
            yield block
    except SlowError as error:
        raise SlowError(f"expected at least {MIN_RATE:,} bytes a second, got {size:,} bytes in {limit:.0f} s") from error


class Digest:
    """The size and sha256 of the blocks that pass through."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0

    def over(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the same blocks and add each to the digest."""
        for block in blocks:
            self._hash.update(block)
            self._bytes += len(block)
            yield block

    @property
    def entry(self) -> dict[str, Any]:
        """{bytes, sha256}, as in manifests."""
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}


def retried(action: Callable[[], T]) -> T:
    """Return the result of `action`, which is repeated after an OSError, except for a full disk or a missing file."""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS * 4 ** (number - 1))
        try:
            return action()
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in FULL or number == TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def at_most(limit: int, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same blocks. Raises DamagedError once there are more than `limit` bytes."""
    size = 0
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DamagedError(f"expected at most {limit:,} bytes, got more")
        yield block


def write_blocks(path: Path, blocks: Iterator[bytes]) -> None:
    """Write a file from its first byte. It is synced when it gets its final name (`durable`)."""
    durable.make_directory(path.parent)
    with path.open("wb") as file:
        for block in blocks:
            file.write(block)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the blocks of a file."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def brief_reason(error: BaseException) -> str:
    """Return the first line of an error message, without the values of credentials."""
    text = (str(error) or type(error).__name__).splitlines()[0][:500]
    for name in CREDENTIALS:
        text = text.replace(os.environ.get(name) or "\0", "***")
    return masked(text)
