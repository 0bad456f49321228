"""HTML: the text between tags of blocks, with inline tags as they stand.

Scripts, styles, preformatted text, comments, attributes and elements with `translate="no"` stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from typing import NamedTuple

from fewstep.documents.document import DocumentError, Edit, Languages, Segment
from fewstep.documents.markup import VOID, Inline, restored

__all__ = ["segments"]

_INLINE = """a abbr acronym b bdi bdo big cite data del dfn em font i img ins label mark q s small span strike strong sub sup
time tt u wbr"""
INLINE = frozenset(_INLINE.split())
"""Elements within a sentence."""
CODES = frozenset(["code", "kbd", "samp", "var"])
"""Elements within a sentence whose content stays."""
SKIPPED = frozenset(["canvas", "iframe", "math", "noscript", "object", "pre", "script", "style", "svg", "template", "textarea"])
"""Elements whose content stays."""
MAX_ENDLESS = 16
"""Comments and tags that do not end, each of which Python's reader looks for up to the end of the document."""
MAX_TAG = 10_000
"""Characters of a tag."""
_TAG_BEGIN = re.compile("<[A-Za-z/!?]")
_LETTER = re.compile(r"[^\W\d_]")


class _Token(NamedTuple):
    kind: str
    """`start`, `end`, `text` or `other`."""
    name: str
    line: int
    start: int
    """The character at which it begins."""
    kept: bool = False
    """Whether the content of an element stays."""


class _Tokens(HTMLParser):
    """Collects the tags and texts of a document with their places."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found = list[_Token]()
        lengths = [len(line) + 1 for line in text.split("\n")]
        self._starts = [0]
        for length in lengths:
            self._starts.append(self._starts[-1] + length)
        self.feed(text)
        self.close()
        self.found.append(_Token("other", "", len(lengths), len(text)))

    def _add(self, kind: str, name: str = "", kept: bool = False) -> None:
        line, column = self.getpos()
        self.found.append(_Token(kind, name, line, self._starts[line - 1] + column, kept))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, tag in SKIPPED | CODES or ("translate", "no") in attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("start", tag, kept=False)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("text")

    def handle_charref(self, name: str) -> None:
        self._add("text")

    def handle_comment(self, data: str) -> None:
        self._add("other")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")


class _Part(NamedTuple):
    raw: str
    is_tag: bool
    line: int
    start: int


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the texts of a document in UTF-8."""
    text = data.decode("utf-8")
    if problem := _endless(text):
        raise DocumentError(f"{name}: expected HTML, got {problem}; repair the document")
    try:
        runs = [part for run in _runs(text) if (part := _trimmed(run))]
    except AssertionError as error:  # of Python's reader, for declarations such as `<![`
        raise DocumentError(
            f"{name}: expected HTML, got a declaration that cannot be read ({error}); repair the document"
        ) from error
    offsets = _byte_offsets(text, [place for run in runs for place in (run[0].start, run[-1].start + len(run[-1].raw))])
    return [_segment(run, offsets) for run in runs]


def _endless(text: str) -> str:
    """Return what Python's reader would look for again and again; empty in a document that it reads in linear time."""
    if text.count("<!--", text.rfind("-->") + 1) > MAX_ENDLESS:
        return f"more than {MAX_ENDLESS} comments that do not end"
    endless = 0
    for match in _TAG_BEGIN.finditer(text):
        endless += text.find(">", match.start(), match.start() + MAX_TAG) < 0
        if endless > MAX_ENDLESS:
            return f"more than {MAX_ENDLESS} tags that do not end within {MAX_TAG:,} characters"
    return ""


def _runs(text: str) -> Iterator[list[_Part]]:
    """Yield texts with inline tags, without tags of blocks between them."""
    run = list[_Part]()
    kept = ""
    depth = 0
    for token, after in pairwise(_Tokens(text).found):
        part = _Part(text[token.start : after.start], token.kind != "text", token.line, token.start)
        if depth:  # in an element whose content stays
            depth += (token.name == kept) * ((token.kind == "start") - (token.kind == "end"))
            if run:
                run[-1] = run[-1]._replace(raw=run[-1].raw + part.raw)
            continue
        inline = token.kind == "text" or token.name in INLINE or token.name in CODES
        if not inline and token.kind != "other" and run:
            yield run
            run = []
        if token.kind == "start" and token.kept and token.name not in VOID:
            kept = token.name
            depth = 1
        if inline or (token.kind == "other" and run):
            run.append(part)
    yield run


def _trimmed(run: list[_Part]) -> list[_Part]:
    """Return a run without the tags around all of it; empty for one without letters."""
    if not any(not part.is_tag and _LETTER.search(html.unescape(part.raw)) for part in run):
        return []
    start = 0
    stop = len(run)
    ends = _ends(run)
    while True:
        while start < stop and _is_blank(run[start]):
            start += 1
        while start < stop and _is_blank(run[stop - 1]):
            stop -= 1
        if not (start < stop - 1 and ends.get(start) == stop - 1):
            return run[start:stop]
        start += 1
        stop -= 1


def _is_blank(part: _Part) -> bool:
    return not part.is_tag and not part.raw.strip()


def _ends(run: list[_Part]) -> dict[int, int]:
    """Return the number of the tag that closes each tag that opens an element."""
    found = dict[int, int]()
    opened = list[int]()
    for number, part in enumerate(run):
        tag = re.match(r"<(/?)([A-Za-z][^\s/>]*)", part.raw) if part.is_tag else None
        if not tag or tag[2].lower() in VOID or tag[2].lower() in CODES or part.raw.endswith("/>"):
            continue
        if not tag[1]:
            opened.append(number)
        elif opened:
            found[opened.pop()] = number
    return found


def _segment(run: list[_Part], offsets: dict[int, int]) -> Segment:
    parts = list[str]()
    tags = list[tuple[int, int]]()
    length = 0
    for part in run:
        text = part.raw if part.is_tag else html.unescape(part.raw)
        if part.is_tag:
            tags.append((length, length + len(text)))
        parts.append(text)
        length += len(text)
    inline = Inline("".join(parts), tuple(tags))
    begin, end = offsets[run[0].start], offsets[run[-1].start + len(run[-1].raw)]

    def write(translation: str, problem: str) -> list[Edit]:
        return [Edit(begin, end, restored(translation, inline).encode())] if translation != inline.text else []

    return Segment(run[0].line, inline.text, write, inline.tags, soft_breaks=True)


def _byte_offsets(text: str, places: list[int]) -> dict[int, int]:
    """Return the byte of each character in UTF-8."""
    found = dict[int, int]()
    position = 0
    offset = 0
    for place in sorted(set(places)):
        offset += len(text[position:place].encode())
        found[place] = offset
        position = place
    return found
