"""Markdown (CommonMark, with tables): the text of paragraphs, headings, items and cells.

Code, front matter, blocks of HTML and definitions of links stay. Destinations of links are kept as placeholders are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate

from fewstep.documents.document import DocumentError, Edit, Languages, Segment

PACKAGE = "markdown-it-py"
MAX_BYTES = 512 << 10
"""Bytes of a document, for which the package holds up to 700 bytes each: a line of `|-|` is a table."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
"""A line of Markdown. Other separators (U+2028, form feeds) end none."""
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*\r?$", re.S | re.M)
_DESTINATION = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\)|\]\[[^\]\n]*\]")
_BLOCK_START = re.compile(r"(?=[#>+*=-]|```|~~~|\|)|\d{1,9}(?=[.)](?:\s|$))")
"""The beginnings of other blocks."""


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the texts of a document in UTF-8. Raises DocumentError for one of more than `MAX_BYTES`, and if the package that reads
    Markdown is not installed."""
    if find_spec("markdown_it") is None:
        raise DocumentError(f"{name}: expected the package {PACKAGE}, which reads Markdown, got none; run: pip install {PACKAGE}")
    if len(data) > MAX_BYTES:
        raise DocumentError(f"{name}: expected at most {MAX_BYTES:,} bytes of Markdown, got {len(data):,}; divide the document")
    text = data.decode("utf-8")
    lines = _LINE.findall(text)
    starts = [0, *accumulate(len(line.encode()) for line in lines)]
    found = list[Segment]()
    cursor = (0, 0)
    for (first, last), content in _texts(text):
        if cursor[0] != first:
            cursor = first, 0
        places = list(_places(lines[first:last], content.split("\n"), cursor[1]))
        if len(places) != content.count("\n") + 1:
            continue  # a tab that is partly indentation
        cursor = (first, places[-1][1]) if len(places) == 1 else (last, 0)
        found.append(_segment(lines, starts, first, places))
    return found


def _texts(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the range of lines of each text, and the text without marks of blocks."""
    from markdown_it import MarkdownIt

    blanked = _FRONT_MATTER.sub(lambda found: "\n" * found[0].count("\n"), text)
    # Marks within texts are not parsed: nobody reads them, and brackets take the package quadratic time.
    for token in MarkdownIt("commonmark").enable("table").disable("inline").parse(blanked):
        if token.type == "inline" and token.map and token.content.strip():
            yield (token.map[0], token.map[1]), token.content


def _places(lines: list[str], parts: list[str], cursor: int) -> Iterator[tuple[int, int]]:
    """Yield where each line of a text stands in its line of the document."""
    for line, part in zip(lines, parts, strict=False):
        wanted = part.strip()
        start = line.find(wanted, cursor)
        if start < 0:
            return
        yield start, start + len(wanted)
        cursor = 0


def _segment(lines: list[str], starts: list[int], first: int, places: list[tuple[int, int]]) -> Segment:
    """Return the segment of a text. The later lines of a translation begin with the marks in front of the second line of the
    text."""
    parts = [lines[first + number][start:stop] for number, (start, stop) in enumerate(places)]
    text = "\n".join(parts)
    prefix = lines[first + 1][: places[1][0]] if len(places) > 1 else ""
    begin = starts[first] + len(lines[first][: places[0][0]].encode())
    last = first + len(places) - 1
    ends = [line[len(line.rstrip("\r\n")) :] for line in lines[first:last]] or ["\n"]
    end = starts[last] + len(lines[last][: places[-1][1]].encode())

    def write(translation: str, problem: str) -> list[Edit]:
        written, *later = _escaped(translation, text).split("\n")
        for number, line in enumerate(later):
            written += ends[min(number, len(ends) - 1)] + prefix + line
        return [Edit(begin, end, written.encode())]

    tags = tuple(match.span() for match in _DESTINATION.finditer(text))
    return Segment(first + 1, text, write, tags, soft_breaks=True)


def _escaped(translation: str, text: str) -> str:
    """Return a translation that begins no other block and no other cell than its text."""
    if "|" not in text:
        translation = translation.replace("|", r"\|")
    if not _BLOCK_START.match(text) and (found := _BLOCK_START.match(translation)):
        return f"{found[0]}\\{translation[found.end() :]}"
    return translation
