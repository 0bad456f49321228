"""The elements of XML documents with their bytes, one after another in bounded memory, and nothing that a document could abuse.

Declarations of entities are refused, so that no entity expands to many (billion laughs) or stands for a file or an address. The
document type itself may be named, as translation memories do; it is not read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from fewstep.documents.document import MAX_UNIT_BYTES, DocumentError

BLOCK_BYTES = 1 << 20
"""Bytes of a document in memory that are parsed at once."""

MAX_DEPTH = 256
"""Elements inside each other."""
FIRST_BYTES = 1024
"""Bytes at the beginning of a document in which its encoding is declared."""

_DECLARED = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")


class Element(NamedTuple):
    """The start or the end of an element."""

    name: str
    line: int
    start: int
    """The byte at which its tag begins."""
    attributes: Mapping[str, str] | None
    """None for an end."""


def encoding_of(data: bytes, name: str) -> str:
    """Return the encoding of a document, `utf-8` or one of UTF-16, from its first bytes. Raises DocumentError for others."""
    for mark, encoding in _WIDE.items():
        if data.startswith(mark):
            return encoding
    declared = _DECLARED.match(data.removeprefix(codecs.BOM_UTF8))
    if declared and (found := declared[1].decode().lower()) not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise DocumentError(
            f"{name}, line 1: expected UTF-8 or UTF-16, got encoding {found}; convert it first (xmllint --encode UTF-8 FILE)"
        )
    return "utf-8"


def as_utf8(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield a document in UTF-8. Raises DocumentError for bytes that its encoding does not have, with their line."""
    decoder: codecs.IncrementalDecoder | None = None
    line = 1
    begin = b""
    for part in blocks:
        block = begin + part
        if decoder is None and len(block) < FIRST_BYTES:
            begin = block
            continue
        begin = b""
        if decoder is None:
            decoder = codecs.getincrementaldecoder(encoding_of(block, name))()
        yield from _decoded(decoder, block, False, name, line)
        line += block.count(b"\n")
    if decoder is None:
        decoder = codecs.getincrementaldecoder(encoding_of(begin, name))()
    yield from _decoded(decoder, begin, True, name, line)


def _decoded(decoder: codecs.IncrementalDecoder, block: bytes, final: bool, name: str, line: int) -> Iterator[bytes]:
    try:
        yield decoder.decode(block, final).encode("utf-8")
    except UnicodeError as error:
        line += block.count(b"\n", 0, error.start if isinstance(error, UnicodeDecodeError) else 0)
        raise DocumentError(
            f"{name}, line {line}: expected text in the encoding of the document, got an invalid "
            f"byte ({error}); convert or repair the file"
        ) from error


def tag_end(data: bytes | bytearray, start: int) -> int:
    """Return the byte behind the tag of a parsed document that begins at `start`."""
    found = _TAG.match(data, start)
    assert found is not None  # it was parsed
    return found.end()


class Elements:
    """The starts and ends of the elements of a document in UTF-8, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._found = list[Element]()
        self._depth = 0
        self._buffer = bytearray()
        self._base = 0
        self._kept: int | None = None
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = self._begun
        parser.EndElementHandler = self._ended
        parser.EntityDeclHandler = self._refuse_declaration
        parser.SkippedEntityHandler = self._refuse_entity
        parser.ExternalEntityRefHandler = self._refuse_entity

    def read(self, blocks: Iterable[bytes]) -> Iterator[Element]:
        """Yield the elements. Raises DocumentError for a document that is not well-formed, that ends early, or that has entities
        of its own."""
        for block in blocks:
            yield from self._parse(block, final=False)
        yield from self._parse(b"", final=True)

    def _parse(self, block: bytes, *, final: bool) -> Iterator[Element]:
        self._buffer += block
        try:
            self._parser.Parse(block, final)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            early = "; the file may be cut off" if error.code in _EARLY else "; repair the file"
            raise DocumentError(f"{self._name}, line {error.lineno}: expected well-formed XML, got: {reason}{early}") from error
        found, self._found = self._found, []
        yield from found
        self._forget(len(block))

    def _forget(self, parsed: int) -> None:
        """Drop the bytes in front of what is kept, and of the tag that is incomplete."""
        keep = self._parser.CurrentByteIndex if self._kept is None else self._kept
        if keep > self._base:
            del self._buffer[: keep - self._base]
            self._base = keep
        if len(self._buffer) > MAX_UNIT_BYTES + parsed:
            self._fail(f"units of at most {MAX_UNIT_BYTES:,} bytes", "a longer one; split it")

    def keep(self, start: int | None) -> None:
        """Keep the bytes from `start` on for `between`; None: only those that were not parsed yet."""
        self._kept = start

    def between(self, start: int, stop: int) -> bytes:
        """Return bytes of the document that were kept."""
        return bytes(self._buffer[start - self._base : stop - self._base])

    def tag_end(self, start: int) -> int:
        """Return the byte behind the tag that begins at `start`, which is kept."""
        return tag_end(self._buffer, start - self._base) + self._base

    def is_empty(self, start: int) -> bool:
        """Return whether the tag that begins at `start` is that of an empty element, such as `<target/>`."""
        end = self.tag_end(start) - self._base
        return self._buffer[end - 2 : end] == b"/>"

    def _begun(self, name: str, attributes: dict[str, str]) -> None:
        parser = self._parser
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} elements inside each other", "more")
        self._found.append(Element(name, parser.CurrentLineNumber, parser.CurrentByteIndex, attributes))

    def _ended(self, name: str) -> None:
        parser = self._parser
        self._depth -= 1
        self._found.append(Element(name, parser.CurrentLineNumber, parser.CurrentByteIndex, None))

    def _refuse_declaration(self, name: str, *_: object) -> None:
        self._fail("no declarations of entities", f"that of {name!r}; write its text in place of &{name};")

    def _refuse_entity(self, name: str | None, *_: object) -> int:
        self._fail("no entities but those of XML", f"&{name};; write its text in its place")

    def _fail(self, expected: str, got: str) -> NoReturn:
        raise DocumentError(f"{self._name}, line {self._parser.CurrentLineNumber}: expected {expected}, got {got}")


_EARLY = (
    expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
    expat.errors.codes[expat.errors.XML_ERROR_PARTIAL_CHAR],
    expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION],
)


def in_utf8(data: bytes) -> Iterator[bytes]:
    """Yield a document in memory in blocks."""
    return (data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES))
