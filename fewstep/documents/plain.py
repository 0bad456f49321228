"""Plain text: each line is a paragraph, whose white space at both ends stays."""

from __future__ import annotations

import re

from fewstep.documents.document import Edit, Languages, Segment

_LINE = re.compile(rb"[^\r\n]+")


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the lines of a text in UTF-8 that are not blank."""
    found = list[Segment]()
    line = 1
    position = 0
    for match in _LINE.finditer(data):
        if not match[0].strip():
            continue
        line += data.count(b"\n", position, match.start())
        position = match.start()
        found.append(_segment(line, match))
    return found


def _segment(line: int, match: re.Match[bytes]) -> Segment:
    def write(translation: str, problem: str) -> list[Edit]:
        return [Edit(*match.span(), translation.encode())]

    return Segment(line, match[0].decode(), write)
