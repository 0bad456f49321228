"""Byte streams over a network: blocks, their digests, and retries."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import durable
from fewstep.patience import GivenUpError
from pipeline.urls import masked
from stages.errors import FULL

BLOCK_BYTES = 1 << 20
TRIES = 3
PAUSE_SECONDS = 0.5
"""Pause before the second try. Each further pause is four times as long."""
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

T = TypeVar("T")


class DamagedError(OSError):
    """The bytes that were read differ from the bytes that were written."""


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
    """Return the result of `action`, which is repeated after an OSError, except for a full disk, a missing file and a
    server that is given up."""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_SECONDS * 4 ** (number - 1))
        try:
            return action()
        except (FileNotFoundError, GivenUpError):
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
