"""Tar archives as streams of members, in bounded memory and time whatever their headers claim.

`tarfile` reads names and headers of any claimed size into memory, and its expressions for them take quadratic time (CPython before
3.11.10). Formats: POSIX.1-1988 (ustar), pax and GNU, without sparse files; POSIX.1-2017, "pax", describes the fields.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from stages.shared.expansion import compression_name, decompressed, most_text, within_ratio

BLOCK = 512
MAX_NAME_BYTES = 4096
"""Bytes of a name."""
MAX_HEADER_BYTES = 1 << 20
"""Bytes of an extended header."""
MAX_HEADERS = 200_000
"""Headers of an archive, in which a member may have several."""
_REGULAR = b"0\x007"
"""Types of regular files."""
_NO_CONTENT = b"123456"
"""Types of links, devices and directories."""


class TarError(Exception):
    """A file is no tar archive, is damaged, or holds what no archive of text does."""


class Member(NamedTuple):
    """A member of an archive."""

    name: str
    regular: bool
    """Whether it is a file."""
    content: IO[bytes]
    """Its content, which is to be read before the next member is asked for."""


def tar_members(path: Path) -> Iterator[Member]:
    """Yield the members of a tar archive, which may be compressed, in its order.

    Raises TarError, DataError for an archive that expands far more than text does, and the errors of damaged compressed files.
    """
    with path.open("rb") as file:
        compression = compression_name(file.peek(BLOCK))
        stream = (
            _Seekable(file)
            if compression is None
            else _Expanded(within_ratio(path, _whole(decompressed(file, compression))), most_text(path))
        )
        yield from _members(stream)


def _whole(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks. Raises TarError where the compressed data are damaged, which pyarrow takes for an error of the system."""
    import pyarrow as pa

    try:
        yield from blocks
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TarError(str(error)) from error


def _members(stream: _Seekable | _Expanded) -> Iterator[Member]:
    name = b""
    sizes = dict[bytes, bytes]()
    for number in range(MAX_HEADERS):
        block = stream.read(BLOCK)
        if not block.strip(b"\0"):
            if number == 0:
                raise TarError("no header of a tar archive")
            return
        header = _Header.of(block)
        if header.kind in b"LKxXg":
            content = stream.read(_padded(_bounded(header.size, "an extended header", MAX_HEADER_BYTES)))[: header.size]
            if header.kind == b"L":
                name = content.rstrip(b"\0")
            elif header.kind in b"xX":
                sizes = _records(content)
            continue
        if header.kind == b"S" or any(key.startswith(b"GNU.sparse") for key in sizes):
            raise TarError("a sparse file, which no text is")
        name = sizes.get(b"path") or name or header.name
        _bounded(len(name), "a name", MAX_NAME_BYTES)
        size = header.size
        if header.kind in _NO_CONTENT:
            size = 0
        elif b"size" in sizes:
            size = _digits(sizes[b"size"], 10)
        _bounded(size, "a member", stream.most)
        part = _Part(stream, size)
        regular = header.kind in _REGULAR and not name.endswith(b"/")
        yield Member(name.decode("utf-8", "surrogateescape"), regular, io.BufferedReader(part))
        stream.skip(part.left + _padded(size) - size)
        name = b""
        sizes = {}
    raise TarError(f"more than {MAX_HEADERS:,} headers")


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _bounded(size: int, what: str, most: int) -> int:
    if size > most:
        raise TarError(f"{what} of {size:,} bytes, more than {most:,}")
    return size


class _Header(NamedTuple):
    name: bytes
    size: int
    kind: bytes

    @staticmethod
    def of(block: bytes) -> _Header:
        rest = block[:148] + b" " * 8 + block[156:]
        stated = _digits(block[148:156], 8)
        if len(block) < BLOCK or (stated != sum(rest) and stated != sum(byte - 2 * (byte & 128) for byte in rest)):
            raise TarError("a damaged header")  # some programs take bytes for signed
        name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
        if prefix and block[257:263] == b"ustar\0":
            name = prefix + b"/" + name
        return _Header(name, _size(block[124:136]), block[156:157])


def _size(field: bytes) -> int:
    """Return a number of octal digits, or of bits, the first of which is set."""
    return int.from_bytes(field[1:], "big") if field[0] == 0x80 else _digits(field, 8)


def _digits(field: bytes, base: int) -> int:
    digits = field.split(b"\0")[0].strip()
    if not (digits or b"0").isdigit() or len(digits) > 20:
        raise TarError(f"{digits[:20]!r} in place of a number")
    try:
        return int(digits or b"0", base)
    except ValueError as error:
        raise TarError(f"{digits!r} in place of a number") from error


def _records(content: bytes) -> dict[bytes, bytes]:
    """Return the records of an extended header, each `LENGTH KEY=VALUE` and a line feed."""
    found = dict[bytes, bytes]()
    start = 0
    while start < len(content):
        space = content.find(b" ", start, start + 20)
        end = start + _digits(content[start:space], 10) if space > 0 else 0
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not (space < end <= len(content)) or not equals or content[end - 1 : end] != b"\n":
            raise TarError("a damaged extended header")
        found[key] = value
        start = end
    return found


class _Seekable:
    """An archive that is not compressed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.most = file.seek(0, io.SEEK_END)
        file.seek(0)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def skip(self, size: int) -> None:
        if self._file.tell() + size > self.most + BLOCK:
            raise TarError("the end within a member")
        self._file.seek(size, io.SEEK_CUR)


class _Expanded:
    """An archive as it is decompressed."""

    def __init__(self, blocks: Iterator[bytes], most: int) -> None:
        self._blocks = blocks
        self.most = most
        self._block = b""
        self._start = 0

    def read(self, size: int) -> bytes:
        parts = list[bytes]()
        while size > 0 and (part := self._next(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        while size > BLOCK and (part := self._next(size)):
            size -= len(part)
        if size > BLOCK:
            raise TarError("the end within a member")
        self.read(size)

    def _next(self, most: int) -> bytes:
        if self._start == len(self._block):
            self._block = next(self._blocks, b"")
            self._start = 0
        part = self._block[self._start : self._start + most]
        self._start += len(part)
        return part


class _Part(io.RawIOBase):
    """The content of a member."""

    def __init__(self, stream: _Seekable | _Expanded, size: int) -> None:
        self._stream = stream
        self.left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.left)
        data = self._stream.read(wanted)
        if wanted and not data:
            raise TarError("the end within a member")
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)
