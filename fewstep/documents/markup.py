"""Inline mark-up of XML: the text of a segment with its inline elements as they stand, and back.

`Click <x id="1"/> &amp; wait` is the text `Click <x id="1"/> & wait`, whose tag is an inline element. Elements that hold codes of
the original document, such as `<bpt>` and `<ph>`, are one tag with their content; others have a tag for the start and the end, but
one if they are empty.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fewstep.text.placeholders import placeholders

CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Elements of TMX and XLIFF 1.2 whose content is a code of the original document."""
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"])
"""Elements of HTML that have no end."""
_TOKEN = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>|&(?P<entity>[^;&<\s]+);|(?P<text>[^<&]+)"""
    r"""|<(?P<end>/?)(?P<name>[^\s/>]+)(?:[^>"'/]|/(?!>)|"[^"]*"|'[^']*')*(?P<empty>/?)>""",
    re.S,
)
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED = re.compile("[&<>]")
_NUMBER = re.compile(r"&#0*([0-9]+)")
_ELEMENT = re.compile(r"""<([^\s/>]+)(?:[^>"']|"[^"]*"|'[^']*')*>(.+)""", re.S)
_TAG_NAME = re.compile(r"<(/?)([^\s/>]+)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not have."""


class Inline(NamedTuple):
    """The text of a segment with the ranges of its tags."""

    text: str
    tags: tuple[tuple[int, int], ...]


def read_inline(raw: str, dropped: Sequence[str] = ()) -> Inline:
    """Return the text of well-formed content. Tags of elements named `dropped` are left out, their content stays."""
    if "<" not in raw and "&" not in raw:
        return Inline(raw, ())
    parts = list[str]()
    tags = list[tuple[int, int]]()
    length = 0
    for part, is_tag in _parts(raw, dropped):
        if is_tag and tags and tags[-1][1] == length and _ends(part, parts[-1]):  # <x id="1"></x>
            tags[-1] = tags[-1][0], length + len(part)
        elif is_tag:
            tags.append((length, length + len(part)))
        parts.append(part)
        length += len(part)
    return Inline("".join(parts), tuple(tags))


def _ends(tag: str, other: str) -> bool:
    """Return whether a tag is the end of the element that another tag begins."""
    begin, end = _TAG_NAME.match(other), _TAG_NAME.match(tag)
    if not begin or not end or other.endswith("/>") or other.count("<") > 1:
        return False
    return (begin[1], end[1]) == ("", "/") and begin[2] == end[2]


def _parts(raw: str, dropped: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield characters and tags in order."""
    position = 0
    depth = 0  # of an element of codes
    begun = 0  # where that element began
    while found := _TOKEN.match(raw, position):
        position = found.end()
        name = found["name"]
        starts = not found["end"] and not found["empty"]
        if depth or (name in CODES and starts):
            begun = begun if depth else found.start()
            if name is not None and not found["empty"]:
                depth += -1 if found["end"] else 1
            if not depth:
                yield raw[begun:position], True
        elif name:
            if name not in dropped:
                yield found[0], True
        elif found["text"]:
            yield found["text"], False
        elif found["cdata"]:
            yield found["cdata"], False
        elif found["entity"]:
            yield _character(found["entity"]), False


def _character(name: str) -> str:
    if name[:1] != "#":
        return _ENTITIES.get(name, f"&{name};")
    return chr(int(name[2:], 16) if name[1:2] in "xX" else int(name[1:]))


def unescaped(text: str) -> str:
    """Return a text of HTML without character references. (Python's function does not read numbers of thousands of digits.)"""
    return html.unescape(_NUMBER.sub(lambda found: f"&#{found[1][:10] or '0'}", text) if "&#" in text else text)


class ShortTags:
    """Tags such as `<x1/>` in place of elements with their content, such as `<ph id="1">%s</ph>` or `<code>a</code>`.

    Networks keep such a tag, which is one placeholder, but no element of several ones. Elements are numbered in the order of the
    source, equal ones alike.
    """

    def __init__(self, source: Inline, target: str = "") -> None:
        """Number the elements of a text.

        Args:
            source: The text.
            target: Its translation, in which the tags must not stand for themselves.
        """
        self._name = "x"
        while f"<{self._name}" in source.text or re.search(f"<{self._name}[1-9]", target):
            self._name += "x"
        self._elements = list(dict.fromkeys(_compounds(source)))
        self._tag = re.compile(rf"<{self._name}([1-9][0-9]{{0,3}})/>")
        self._numbers = {element: number for number, element in enumerate(self._elements, 1)}

    def __bool__(self) -> bool:
        """Return whether the source has such elements."""
        return bool(self._elements)

    def shortened(self, text: Inline) -> Inline:
        """Return a text with short tags in place of elements. Those that the source lacks have further numbers."""
        parts = list[str]()
        tags = list[tuple[int, int]]()
        position = length = 0
        for start, stop in text.tags:
            tag = text.text[start:stop]
            if tag in self._numbers or _is_compound(tag):
                tag = f"<{self._name}{self._numbers.setdefault(tag, len(self._numbers) + 1)}/>"
            between = text.text[position:start]
            parts += [between, tag]
            length += len(between) + len(tag)
            tags.append((length - len(tag), length))
            position = stop
        return Inline("".join([*parts, text.text[position:]]), tuple(tags))

    def full(self, text: str) -> str:
        """Return a text with the elements of the source that its short tags stand for."""
        elements = self._elements
        return self._tag.sub(lambda one: elements[int(one[1]) - 1] if int(one[1]) <= len(elements) else one[0], text)

    def match(self, target: Inline) -> None:
        """Give elements of a translation the numbers of those of the source that differ in attributes alone."""
        others = dict.fromkeys(_compounds(target))
        free = dict[tuple[str, str], list[str]]()
        for element in reversed(self._elements):
            if element not in others and (found := _ELEMENT.fullmatch(element)):
                free.setdefault((found[1], found[2]), []).append(element)
        for element in others:
            found = _ELEMENT.fullmatch(element)
            if element not in self._numbers and found and (same := free.get((found[1], found[2]))):
                self._numbers[element] = self._numbers[same.pop()]


def shortened_pair(source: Inline, target: Inline) -> tuple[str, str]:
    """Return both sides of a pair with short tags, the source as it is translated (`ShortTags`)."""
    if not (source.tags or target.tags):
        return source.text, target.text
    tags = ShortTags(source, target.text)
    tags.match(target)
    return tags.shortened(source).text, tags.shortened(target).text


def _compounds(text: Inline) -> Iterator[str]:
    """Yield the tags of a text that are elements with their content."""
    return (tag for start, stop in text.tags if _is_compound(tag := text.text[start:stop]))


def _is_compound(tag: str) -> bool:
    return tag.startswith("<") and [one.span() for one in placeholders(tag)] != [(0, len(tag))]


def escaped_text(text: str) -> str:
    """Return characters as content of XML; those that XML lacks are left out."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], _NOT_XML.sub("", text))


def restored(translation: str, source: Inline) -> str:
    """Return a translation as content of XML: the tags of the source as they stand, the rest escaped.

    A text of the source may look like a tag without being one; the n-th occurrence in the translation is what the n-th in the
    source is. Tags of elements that would not be closed, or not be opened, are left out, so that the content is well-formed.
    """
    raw = {flat(tag): tag for start, stop in reversed(source.tags) if (tag := source.text[start:stop])}
    if not raw:
        return escaped_text(translation)
    real, places = dict[str, list[bool]](), set(source.tags)
    parts = list[tuple[str, bool]]()
    position = 0
    for start, stop in occurrences(source.text, raw):
        real.setdefault(flat(source.text[start:stop]), []).append((start, stop) in places)
    for start, stop in occurrences(translation, raw):
        tag = flat(translation[start:stop])
        kinds = real.get(tag, [True])
        parts += [(translation[position:start], False), (raw[tag], kinds.pop(0) if len(kinds) > 1 else kinds[0])]
        position = stop
    parts.append((translation[position:], False))
    same = [text for text, is_tag in parts if is_tag] == [source.text[start:stop] for start, stop in source.tags]
    unbalanced = set[int]()
    if not same:
        unbalanced = _unbalanced([text if is_tag else "" for text, is_tag in parts])
    balanced = [part for number, part in enumerate(parts) if number not in unbalanced]
    return "".join(text if is_tag else escaped_text(text) for text, is_tag in balanced)


def flat(text: str) -> str:
    """Return a text in which each run of white space is one space, as a translation has it."""
    return " ".join(text.split())


def occurrences(text: str, tags: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges in which a text has one of the tags, whatever the white space in them, in order."""
    patterns = [r"\s+".join(map(re.escape, tag.split())) for tag in sorted(tags, key=len, reverse=True)]
    return (found.span() for found in re.finditer("|".join(patterns), text)) if patterns else iter(())


def _unbalanced(tags: Sequence[str]) -> set[int]:
    """Return the numbers of the tags that have no partner in their order."""
    opened = list[tuple[str, int]]()
    names = Counter[str]()
    wrong = set[int]()
    for number, tag in enumerate(tags):
        found = _TAG_NAME.match(tag)
        if not found or tag.count("<") > 1 or tag.endswith("/>") or found[2].lower() in VOID or found[2][0] in "!?":
            continue  # it stands for itself
        if not found[1]:
            opened.append((found[2], number))
            names[found[2]] += 1
        elif names[found[2]]:
            while opened[-1][0] != found[2]:
                names[opened[-1][0]] -= 1
                wrong.add(opened.pop()[1])
            names[opened.pop()[0]] -= 1
        else:
            wrong.add(number)
    return wrong | {number for _, number in opened}
