"""Limits on text files, so that memory and time stay bounded whatever a file holds."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from stages.errors import DataError

MAX_LINE_BYTES = 1 << 20
"""Bytes of one line, the line feed included."""
MAX_RATIO = 200
"""Bytes of text for each byte of a compressed file. Text compresses to a third or a fifth."""
MIN_CHECKED_BYTES = 64 << 20
"""Bytes of text up to which the ratio is not checked."""


def require_regular(path: Path) -> None:
    """Raise DataError if a file exists that is not a regular file. A pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # reported where the file is opened
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(f"{path}: expected a readable text file, got a pipe, socket or device; write its content to a file")


def check_line(path: Path, number: int, size: int) -> None:
    """Raise DataError if the line `number` of a file, of which `size` bytes are known, is too long."""
    if size > MAX_LINE_BYTES:
        raise DataError(
            f"{path}, line {number}: expected at most {MAX_LINE_BYTES:,} bytes, got a longer line; split or remove the line"
        )


def within_ratio(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed blocks of a file. Raises DataError when they hold far more than text of the file's size can."""
    limit, size = max(MIN_CHECKED_BYTES, MAX_RATIO * path.stat().st_size), 0
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DataError(
                f"{path}: expected at most {limit:,} bytes of text from a file of {path.stat().st_size:,} bytes, got more; "
                "replace the file, or decompress it if this is intended"
            )
        yield block
