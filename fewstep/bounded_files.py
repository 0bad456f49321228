"""Files from elsewhere that are held in memory: regular ones, and no larger than such a file can be."""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from pathlib import Path
from typing import Any, cast

MAX_VOCABULARY_BYTES = 16 << 20
"""Bytes of a vocabulary, of its merges or of its dictionary: a model of 256,000 pieces takes 5 MiB."""
MAX_RATIO = 200
"""Bytes of text for each byte of gzip. Text compresses to a third or a fifth."""
MIN_BYTES = 64 << 20
"""Bytes of text up to which the ratio is not checked."""
BLOCK = 1 << 20
MAX_JSON_VALUES = 10_000_000
MAX_RECORD_BYTES = 256 << 20
"""Bytes of a file that the pipeline keeps about its work, of which manifests of 100,000 files are the largest: 20 MB."""


def read_bounded(path: Path, most: int = MAX_VOCABULARY_BYTES) -> bytes:
    """Return the content of a regular file. Raises ValueError for one of more than `most` bytes, and for a pipe or a device, which
    may never end; OSError if it cannot be read."""
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise ValueError(f"{path}: expected a regular file, got a pipe or a device")
    if stat.S_ISREG(found.st_mode) and found.st_size > most:
        raise ValueError(f"{path}: expected at most {most:,} bytes, got {found.st_size:,}; it is another file, or damaged")
    return path.read_bytes()


def read_at_most(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a file. Raises OSError if it cannot be read, or would keep a reader waiting, as a pipe that
    took the place of a file does, and `/proc/kmsg`."""

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=without_waiting) as file:
        if (content := cast(bytes | None, file.read(most))) is None:
            raise OSError(errno.EAGAIN, "a file that makes readers wait")
    return content


def json_value(content: bytes) -> Any:
    """Return the value that JSON states. Raises ValueError for anything else and for more than `MAX_JSON_VALUES` values, whose
    objects would not fit a gibibyte (a value of 3 bytes takes 24 times as much); RecursionError for deep nesting."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise ValueError(f"expected at most {MAX_JSON_VALUES:,} values of JSON, got more")
    return json.loads(content)


def expanded(content: bytes) -> bytes:
    """Return what gzip has compressed. Raises ValueError if it holds far more than text can, EOFError or zlib.error if it is
    damaged."""
    most = max(MIN_BYTES, MAX_RATIO * len(content))
    parts = list[bytes]()
    size = 0
    while content:
        stream = zlib.decompressobj(wbits=31)
        while content and not stream.eof:
            parts.append(stream.decompress(content, BLOCK))
            content = stream.unconsumed_tail
            size += len(parts[-1])
            if size > most:
                raise ValueError(f"expected at most {most:,} bytes of text, got more")
        if not stream.eof:
            raise EOFError("the file ended before the end of the compressed text")
        # Zeros between members and behind the last one are padding, which gzip itself passes over.
        content = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)
