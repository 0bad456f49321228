"""Files that are no plain text in UTF-8, by their first bytes: compressed files, archives, and text in UTF-16 or UTF-32."""

from __future__ import annotations

import codecs
from pathlib import Path

FIRST_BYTES = 1 << 16
"""Bytes at the beginning of a text that are looked at."""

_PACKED = {
    b"\x1f\x8b": ("a gzip file", "zcat"),
    b"\x28\xb5\x2f\xfd": ("a zstd file", "zstdcat"),
    b"\xfd7zXZ\x00": ("an xz file", "xzcat"),
    b"\x04\x22\x4d\x18": ("an lz4 file", "lz4cat"),
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x -so"),
    **{b"BZh" + bytes([level]) + b"1AY&SY": ("a bzip2 file", "bzcat") for level in b"123456789"},
}
"""The first bytes of compressed files, what they are, and the program that writes their content."""
_WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Byte order marks; that of UTF-16 is a prefix of one of UTF-32, which therefore comes first."""
_OTHER = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"%PDF-": "a PDF file"}
_SHIFTS = (b"\x1b$", b"\x1b(B")
"""Escape sequences of ISO-2022, which is 7-bit and therefore valid UTF-8."""


class TextFormatError(ValueError):
    """A file that is no plain text in UTF-8."""


def check_text(begin: bytes, place: str) -> None:
    """Raise TextFormatError unless a text at `place`, which begins with these bytes, may be plain text in UTF-8."""
    for magic, (kind, program) in _PACKED.items():
        if begin.startswith(magic):
            raise TextFormatError(f"{place}: expected plain text, got {kind}; decompress it first ({program} FILE)")
    for magic, kind in _OTHER.items():
        if begin.startswith(magic):
            raise TextFormatError(f"{place}: expected plain text, got {kind}; convert it first")
    encoding = next((name for mark, name in _WIDE.items() if begin.startswith(mark)), None)
    if encoding is None and begin.count(0) * 8 > len(begin):  # text in Latin or other scripts, with ASCII spaces and punctuation
        encoding = "UTF-16 or UTF-32"
    if encoding is None and all(shift in begin for shift in _SHIFTS):
        encoding = "ISO-2022"
    if encoding is not None:
        raise TextFormatError(f"{place}: expected UTF-8, got {encoding}; convert it first (iconv -f ENCODING -t UTF-8 FILE)")


def check_text_file(path: Path) -> None:
    """Raise TextFormatError unless a file may be plain text. Files that cannot be read, pipes and devices are left to others."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        check_text(file.read(FIRST_BYTES), str(path))
