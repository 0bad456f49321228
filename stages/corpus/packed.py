"""Compressed text files, known by their first bytes."""

from __future__ import annotations

import codecs
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa

from fewstep.text.format import FIRST_BYTES, TextFormatError, check_text
from stages.errors import DataError

BLOCK_BYTES = 4 << 20
"""Largest number of bytes of a block of text."""
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
"""Names of compressions by the first bytes of a file."""
SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
"""Names of compressions by the suffix of a file, in small or capital letters."""
_BZIP2_BLOCK = b"1AY&SY"


def compression_of(path: Path) -> str | None:
    """Return the compression of a file; None for plain text.

    Raises DataError for content that the suffix denies and for text in other encodings than UTF-8, OSError for a file that cannot
    be read.
    """
    with path.open("rb") as file:
        return _compression(file, path)


def _compression(file: IO[bytes], name: Path, wide: bool = False) -> str | None:
    begin: bytes = file.peek(FIRST_BYTES)  # type: ignore[attr-defined]
    found = next((name for magic, name in MAGIC.items() if begin.startswith(magic)), None)
    if found == "bz2" and begin[4 : 4 + len(_BZIP2_BLOCK)] != _BZIP2_BLOCK:
        found = None  # a text that begins with BZh
    if found != (expected := SUFFIXES.get(name.suffix.lower(), found)):
        raise DataError(
            f"{name}: expected a readable {name.suffix} file, got {found or 'other'} content in place of {expected}; rename or "
            "replace the file"
        )
    if found is None:
        _check(begin, name, wide)
    return found


def text_blocks(file: IO[bytes], name: Path, *, wide: bool = False) -> Iterator[bytes]:
    """Yield a text, decompressed, in blocks of at most `BLOCK_BYTES`. `file` is buffered and `name` stands in errors. `wide`: it
    may be in UTF-16.

    Raises the errors of `compression_of`, and OSError, pa.ArrowException and lzma.LZMAError for damaged files.
    """
    first = True
    for block in _decompressed(file, _compression(file, name, wide)):
        if first:
            _check(block[:FIRST_BYTES], name, wide)
        first = False
        yield block


def _decompressed(file: IO[bytes], compression: str | None) -> Iterator[bytes]:
    with lzma.open(file) if compression == "xz" else pa.input_stream(file, compression=compression) as stream:
        yield from iter(lambda: stream.read(BLOCK_BYTES), b"")


def _check(begin: bytes, name: Path, wide: bool = False) -> None:
    if wide and begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return
    try:
        check_text(begin, str(name))
    except TextFormatError as error:
        raise DataError(str(error)) from error
