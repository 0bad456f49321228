"""Compressed text files, known by their first bytes."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from fewstep.text.format import FIRST_BYTES, TextFormatError, check_text
from stages.errors import DataError
from stages.shared.expansion import compression_name, decompressed

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
    found = compression_name(begin)
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
    """Yield a text, decompressed, in blocks, as `decompressed` does. `file` is buffered and `name` stands in errors.
    `wide`: it may be in UTF-16.

    Raises the errors of `compression_of`, and those of `decompressed`.
    """
    first = True
    for block in decompressed(file, _compression(file, name, wide)):
        if first:
            _check(block[:FIRST_BYTES], name, wide)
        first = False
        yield block


def _check(begin: bytes, name: Path, wide: bool = False) -> None:
    if wide and begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return
    try:
        check_text(begin, str(name))
    except TextFormatError as error:
        raise DataError(str(error)) from error
