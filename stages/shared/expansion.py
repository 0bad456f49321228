"""Compressed files, which are known by their first bytes and expanded in bounded memory, and no further than text can be."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from stages.errors import DataError

BLOCK_BYTES = 4 << 20
"""Largest number of bytes of a block of text."""
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
"""Names of compressions by the first bytes of a file."""
MAX_RATIO = 200
"""Bytes of text for each byte of a compressed file. Text compresses to a third or a fifth."""
MIN_CHECKED_BYTES = 64 << 20
"""Bytes of text up to which the ratio is not checked."""
XZ_MEMORY = 256 << 20
"""Bytes of memory for xz, whose files state what they need (the options of its program: 65 MiB)."""
XZ_READ_BYTES = 1 << 16
"""Bytes of xz that are read at a time."""


def compression_name(begin: bytes) -> str | None:
    """Return the compression of a file with these first bytes, or None."""
    return next((name for magic, name in MAGIC.items() if begin.startswith(magic)), None)


def decompressed(file: IO[bytes], compression: str | None) -> Iterator[bytes]:
    """Yield the content of a file in blocks of at most `BLOCK_BYTES`. Raises OSError, EOFError, pa.ArrowException or
    lzma.LZMAError for a damaged file, and one that needs too much memory."""
    if compression == "xz":
        yield from _xz(file)
        return
    import pyarrow as pa

    with pa.input_stream(file, compression=compression) as stream:
        yield from iter(lambda: stream.read(BLOCK_BYTES), b"")


def _xz(file: IO[bytes]) -> Iterator[bytes]:
    """Yield what streams of xz hold, one after the other. (`lzma.open` has no limit of memory.)"""
    data = file.read(XZ_READ_BYTES)
    while data:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        while not stream.eof:
            block = stream.decompress(data, BLOCK_BYTES)
            if block:
                yield block
            data = b""
            if stream.needs_input and not stream.eof and not (data := file.read(XZ_READ_BYTES)):
                raise EOFError("compressed file ended before the end-of-stream marker was reached")
        data = stream.unused_data.lstrip(b"\0")
        while not data and (more := file.read(XZ_READ_BYTES)):
            data = more.lstrip(b"\0")


def most_text(path: Path) -> int:
    """Return the largest number of bytes of text that a file may expand to."""
    return max(MIN_CHECKED_BYTES, MAX_RATIO * path.stat().st_size)


def within_ratio(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the decompressed blocks of a file. Raises DataError when they hold far more than text of the file's size can."""
    limit = most_text(path)
    size = 0
    for block in blocks:
        size += len(block)
        if size > limit:
            raise DataError(
                f"{path}: expected at most {limit:,} bytes of text from a file of {path.stat().st_size:,} bytes, got more; "
                "replace the file, or decompress it if this is intended"
            )
        yield block
