"""Text with mark-up: the text between tags is translated, all else stays as it is written.

A tag is the end of a text, so that `a <b>red</b> ball` is three texts. No element is moved or repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape, unescape
from typing import NamedTuple

KEPT = frozenset({"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "var"})
"""Elements whose content is not translated, as that of elements with `translate="no"` or the class `notranslate`."""
RAW = frozenset({"script", "style"})
"""Elements whose content is no mark-up."""
VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"})
"""Elements without an end."""
ENDS = {"<!--": "-->", "<![CDATA[": "]]>"}
MAX_ENDLESS = 16
"""Comments and sections that do not end."""
_TAG = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[!?][^<>]*>|<(?P<end>/?)(?P<name>[a-zA-Z][^\s/<>"']*)(?P<rest>(?:[^<>"']|"[^"]*"|'[^']*')*+)>""",
    re.DOTALL,
)
_NOT_TRANSLATED = re.compile(
    r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*(?:"[^"]*\bnotranslate\b|'[^']*\bnotranslate\b|notranslate\b)""", re.IGNORECASE
)
_SPACES = re.compile(r"[ \t\r\n\f]+")
_TEXT = re.compile(r"(?P<before>(?:\s|&nbsp;|&#160;)*+)(?P<body>.*?)(?:\s|&nbsp;|&#160;)*", re.DOTALL)


class Piece(NamedTuple):
    """A text of a document, without character references, and the mark-up in front of it and behind it, which stays."""

    before: str
    text: str
    after: str


def pieces(document: str) -> list[Piece]:
    """Return the parts of a document, in order. White space within a text is one space, as a browser shows it.

    A document with many comments or sections that do not end is no text: each would be looked for to the end of the document.
    """
    if any(document.count(begin, document.rfind(end) + 1) > MAX_ENDLESS for begin, end in ENDS.items()):
        return [Piece(document, "", "")]
    found = list[Piece]()
    kept = ""
    for part, translated in _parts(document):
        match = _TEXT.fullmatch(part)
        text = _SPACES.sub(" ", unescape(match["body"])) if translated and match else ""
        if not match or not text.strip():
            kept += part
            continue
        found.append(Piece(kept + match["before"], text, part[match.end("body") :]))
        kept = ""
    return [*found, Piece(kept, "", "")]


def filled(found: Sequence[Piece], outputs: Sequence[str]) -> str:
    """Return the document of `pieces` with the outputs for all of its texts but the last one, which is empty."""
    texts = [*(escape(output, quote=False) for output in outputs), ""]
    return "".join(piece.before + text + piece.after for piece, text in zip(found, texts, strict=True))


def _parts(document: str) -> Iterator[tuple[str, bool]]:
    """Yield the tags and texts of a document, each with whether it is to be translated."""
    position = 0
    kept = ""
    depth = 0
    while match := _TAG.search(document, position):
        yield document[position : match.start()], not depth
        yield match.group(), False
        position = match.end()
        name = (match["name"] or "").lower()
        if match["end"]:
            depth -= name == kept and depth > 0
        elif name and not match["rest"].endswith("/") and name not in VOID:
            if not depth and (name in KEPT or _NOT_TRANSLATED.search(match["rest"])):
                kept = name
                depth = 1
            elif depth and name == kept:
                depth += 1
            if name in RAW and (end := re.compile(rf"</{name}\b", re.IGNORECASE).search(document, position)):
                yield document[position : end.start()], False
                position = end.start()
    yield document[position:], not depth
