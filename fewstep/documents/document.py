"""The parts of a document that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

MAX_UNIT_BYTES = 16 << 20
"""Bytes of one unit with all of its languages. A longer one is refused before it fills the memory."""

FORMATS = {
    ".po": "po",
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".sdlxliff": "xliff",
    ".mqxliff": "xliff",
    ".mxliff": "xliff",
}
"""Formats of files with both sides, by suffix."""

Languages = tuple[str, str]
"""Codes of the languages of source and target."""

FUZZY, OBSOLETE, UNTRANSLATED = "fuzzy", "obsolete", "untranslated"
NO_LANGUAGE, NOT_FOR_TRANSLATION, REPEATED_ID = "no_language", "not_for_translation", "repeated_id"
SKIP_REASONS = (UNTRANSLATED, FUZZY, OBSOLETE, NO_LANGUAGE, NOT_FOR_TRANSLATION, REPEATED_ID)
"""Reasons why a unit of a file is no pair of sentences."""


class DocumentError(ValueError):
    """A document that cannot be read: the message names the file and the line."""


class Unit(NamedTuple):
    """A unit of a file with both of its sides."""

    line: int
    """The line at which it begins."""
    source: str
    target: str
    skipped: str = ""
    """The reason of `SKIP_REASONS` why it is no pair; empty for a pair."""


class Edit(NamedTuple):
    """Bytes `start` to `stop` of a document, and what replaces them."""

    start: int
    stop: int
    text: bytes
    order: int = 0
    """The order of what is inserted at one place, and of what replaces the same bytes."""


@dataclass(frozen=True)
class Segment:
    """A text of a document that can be translated in place."""

    line: int
    text: str
    """The source, with inline elements as they stand."""
    write: Callable[[str, str], list[Edit]] = field(repr=False)
    """Return the edits that write a translation and mark it with its problem (an empty text: it has no problem)."""
    tags: tuple[tuple[int, int], ...] = ()
    """The ranges of `text` that are inline elements."""
    translated: bool = False
    """Whether the document has a translation of it."""
    soft_breaks: bool = False
    """Whether the ends of lines in the text are mere white space."""


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Return a document with all edits made. Equal edits are made once, and of different orders that replace the same bytes the
    last one; others may not overlap."""
    parts = list[bytes]()
    position = 0
    made = sorted(dict.fromkeys(edits), key=lambda one: (one.start, one.stop, one.order))
    for edit, following in zip_longest(made, made[1:]):
        if following and edit.start < edit.stop and following[:2] == edit[:2] and following.order > edit.order:
            continue
        if edit.start < position:
            raise ValueError(f"expected edits that do not overlap, got one at byte {edit.start} after one that ends at {position}")
        parts += [data[position : edit.start], edit.text]
        position = edit.stop
    return b"".join([*parts, data[position:]])


def indentation(data: bytes, position: int) -> bytes:
    """Return the end of line and the white space in front of what begins its line at `position`; nothing within a line."""
    begin = data.rfind(b"\n", 0, position) + 1
    if begin == 0 or data[begin:position].strip():
        return b""
    return (b"\r\n" if data[begin - 2 : begin] == b"\r\n" else b"\n") + data[begin:position]


def lines_of(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a text, each with its line feed. Raises DocumentError for a line of more than `MAX_UNIT_BYTES`."""
    rest = b""
    number = 0
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
        number += len(lines)
        if len(rest) > MAX_UNIT_BYTES:
            raise DocumentError(f"{name}, line {number + 1}: expected at most {MAX_UNIT_BYTES:,} bytes, got a longer line")
    if rest:
        yield rest
