"""HTML: the text between tags of blocks, with inline tags as they stand, or the text between any two tags.

Scripts, styles, preformatted text, comments, attributes, and elements with `translate="no"` or the class `notranslate` stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fewstep.documents.document import DocumentError, Edit, Languages, Segment
from fewstep.documents.markup import VOID, Inline, restored, unescaped

_INLINE = """a abbr acronym b bdi bdo big cite data del dfn em font i img ins label mark q s small span strike strong sub sup
time tt u wbr"""
CODES = frozenset(["code", "kbd", "samp", "var"])
"""Elements within a sentence whose content stays."""
INLINE = frozenset(_INLINE.split()) | CODES
"""Elements within a sentence."""
RAW = frozenset(["script", "style"])
"""Elements whose content is no mark-up."""
KEPT = frozenset(["canvas", "iframe", "math", "noscript", "object", "pre", "svg", "template", "textarea"]) | RAW | CODES
"""Elements whose content stays."""
MAX_ENDLESS = 16
"""Comments and tags that do not end: a document with more is damaged."""
MAX_TAG = 10_000
"""Characters of a tag."""
_TAG_BEGIN = re.compile("<[A-Za-z/!?]")
_TAG = re.compile(
    r"""<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^<>]*>"""
    r"""|<(?P<end>/?)(?P<name>[a-zA-Z][^\s/<>"']*+)(?P<rest>(?:[^<>"']|"[^"]*"|'[^']*')*+)>""",
    re.DOTALL,
)
_NOT_TRANSLATED = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*(?:"[^"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)""", re.IGNORECASE
)
_LETTER = re.compile(r"[^\W\d_]")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_SPACE_REFERENCES = ("&nbsp;", "&#160;")


class _Part(NamedTuple):
    """A tag, a comment or a text of a document."""

    raw: str
    start: int
    """The character at which it begins."""
    is_tag: bool = False
    """Whether it is a tag, a comment or a declaration."""
    name: str = ""
    """The name of a tag."""
    is_end: bool = False
    stays: bool = False
    """Whether it is in an element whose content stays, or ends it."""


def _parts(document: str, ignored: Collection[str] = ()) -> Iterator[_Part]:
    """Yield the parts of a document in order, in linear time. A comment or script without an end takes the rest of it.

    The content of elements with an `ignored` name in lower case stays as well.
    """
    position = 0
    kept = ""
    depth = 0
    while match := _TAG.search(document, position):
        if position < match.start():
            yield _Part(document[position : match.start()], position, stays=depth > 0)
        name = (match["name"] or "").lower()
        yield _Part(match.group(), match.start(), True, name, bool(match["end"]), depth > 0)
        position = match.end()
        if match["end"]:
            depth -= name == kept and depth > 0
        elif name and not match["rest"].endswith("/") and name not in VOID:
            if depth:
                depth += name == kept
            elif name in KEPT or name in ignored or _NOT_TRANSLATED.search(match["rest"]):
                kept = name
                depth = 1
            if name in RAW:
                end = re.compile(rf"</{name}\b", re.IGNORECASE).search(document, position)
                stop = end.start() if end else len(document)
                yield _Part(document[position:stop], position, stays=True)
                position = stop
    if position < len(document):
        yield _Part(document[position:], position, stays=depth > 0)


class Piece(NamedTuple):
    """A text between two tags, without character references, and what is in front of it and behind it, which stays."""

    before: str
    text: str
    after: str


def pieces(document: str, ignored: Collection[str] = ()) -> list[Piece]:
    """Return the texts between any two tags of a document, in order, and an empty text at the end.

    White space within a text is one space, as a browser shows it. No tag is moved or repeated: `a <b>red</b> ball` is three texts.
    The content of elements with an `ignored` name in lower case stays.
    """
    found = list[Piece]()
    kept = ""
    for part in _parts(document, ignored):
        start, end = (0, 0) if part.is_tag or part.stays else _body(part.raw)
        text = _SPACES.sub(" ", unescaped(part.raw[start:end]))
        if not text.strip():
            kept += part.raw
            continue
        found.append(Piece(kept + part.raw[:start], text, part.raw[end:]))
        kept = ""
    return [*found, Piece(kept, "", "")]


def _body(part: str) -> tuple[int, int]:
    """Return where a text begins and ends without the white space around it."""
    start = 0
    end = len(part)
    while start < end and (part[start].isspace() or part.startswith(_SPACE_REFERENCES, start)):
        start += 1 if part[start].isspace() else len(_SPACE_REFERENCES[0])
    while start < end and (part[end - 1].isspace() or part.endswith(_SPACE_REFERENCES, start, end)):
        end -= 1 if part[end - 1].isspace() else len(_SPACE_REFERENCES[0])
    return start, end


def filled(found: Sequence[Piece], outputs: Sequence[str]) -> str:
    """Return the document of `pieces` with the outputs for all of its texts but the last one, which is empty."""
    texts = [*(html.escape(output, quote=False) for output in outputs), ""]
    return "".join(piece.before + text + piece.after for piece, text in zip(found, texts, strict=True))


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the texts between blocks of a document in UTF-8. Raises DocumentError for a damaged one."""
    text = data.decode("utf-8")
    if problem := _damage(text):
        raise DocumentError(f"{name}: expected HTML, got {problem}; repair the document")
    runs = [part for run in _runs(text) if (part := _trimmed(run))]
    offsets = _byte_offsets(text, [place for run in runs for place in (run[0].start, run[-1].start + len(run[-1].raw))])
    found = list[Segment]()
    line = 1
    position = 0
    for run in runs:
        line += text.count("\n", position, run[0].start)
        position = run[0].start
        found.append(_segment(run, line, offsets))
    return found


def _damage(text: str) -> str:
    """Return a problem that no reader repairs as the author meant it; empty in other documents."""
    if text.count("<!--", text.rfind("-->") + 1) > MAX_ENDLESS:
        return f"more than {MAX_ENDLESS} comments that do not end"
    if "<![" in text[text.rfind(">") + 1 :]:
        return "a declaration that cannot be read, since it does not end"
    endless = 0
    for match in _TAG_BEGIN.finditer(text):
        endless += text.find(">", match.start(), match.start() + MAX_TAG) < 0
        if endless > MAX_ENDLESS:
            return f"more than {MAX_ENDLESS} tags that do not end within {MAX_TAG:,} characters"
    return ""


def _runs(text: str) -> Iterator[list[_Part]]:
    """Yield texts with inline tags, without tags of blocks between them. An element that stays is one tag."""
    run = list[_Part]()
    for part in _parts(text):
        if part.stays:
            if run:
                run[-1] = run[-1]._replace(raw=run[-1].raw + part.raw, name="")
            continue
        inline = not part.is_tag or part.name in INLINE
        if part.name and not inline and run:
            yield run
            run = []
        if inline or (run and not part.name):
            run.append(part)
    yield run


def _trimmed(run: list[_Part]) -> list[_Part]:
    """Return a run without the tags around all of it; empty for one without letters."""
    if not any(not part.is_tag and _LETTER.search(unescaped(part.raw)) for part in run):
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
        if not part.name or part.name in VOID or part.raw.endswith("/>"):
            continue
        if not part.is_end:
            opened.append(number)
        elif opened:
            found[opened.pop()] = number
    return found


def _segment(run: list[_Part], line: int, offsets: dict[int, int]) -> Segment:
    parts = list[str]()
    tags = list[tuple[int, int]]()
    length = 0
    for part in run:
        text = part.raw if part.is_tag else unescaped(part.raw)
        if part.is_tag:
            tags.append((length, length + len(text)))
        parts.append(text)
        length += len(text)
    inline = Inline("".join(parts), tuple(tags))
    begin, end = offsets[run[0].start], offsets[run[-1].start + len(run[-1].raw)]

    def write(translation: str, problem: str) -> list[Edit]:
        return [Edit(begin, end, restored(translation, inline).encode())] if translation != inline.text else []

    return Segment(line, inline.text, write, inline.tags, soft_breaks=True)


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
