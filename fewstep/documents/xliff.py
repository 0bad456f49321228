"""Files of XLIFF 1.2, 2.0 and 2.1: units with a source and a target.

| unit | pairs |
|---|---|
| `trans-unit` (1.2) or `segment` (2.x) with a target | one |
| `trans-unit` with marks of segments (`<mrk mtype="seg">`) in `seg-source` or `source`, and in the target | one a mark |
| without a target, or with the state `new` or `needs-translation` (1.2) | none, counted as `untranslated` |
| with another state that begins with `needs-` (1.2), or `initial` (2.x) | none, counted as `fuzzy` |
| that Trados, memoQ or Phrase has as a draft, as rejected or as not confirmed | none, counted as `fuzzy` |
| with `translate="no"` | none, counted as `not_for_translation` |
| with the id of an earlier unit of its file | none, counted as `repeated_id` |

Suggestions (`alt-trans`, `mtc:match`) are not read. Where the target has other marks than the source, a unit is one pair without
them. Targets are written with the marks of their source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, NoReturn

from fewstep.documents.document import (
    FUZZY,
    NOT_FOR_TRANSLATION,
    REPEATED_ID,
    UNTRANSLATED,
    DocumentError,
    Edit,
    Languages,
    Segment,
    Unit,
    indentation,
)
from fewstep.documents.elements import Element, Elements, as_utf8, in_utf8, tag_end
from fewstep.documents.markup import Inline, escaped_text, read_inline, restored, shortened_pair
from fewstep.text.languages import is_language

_CONTAINERS = ("xliff", "file", "group", "unit", "body")
"""Elements whose `translate` holds for what is in them."""
_SIDES = {"source": "source", "seg-source": "divided", "target": "target"}
"""Elements of a unit, and the attributes of `_Translatable` that hold them."""
_TO_DO = ("new", "needs-translation")
_UNREVIEWED = {
    "conf": ("Draft", "RejectedTranslation", "RejectedSignOff"),
    "status": ("NotStarted", "PreTranslated", "PartiallyEdited", "AssembledFromFragments", "MachineTranslated", "Rejected"),
    "confirmed": ("0",),
}
"""Values of the attributes `sdl:seg/@conf` of Trados, and `mq:status` of memoQ and `m:confirmed` of Phrase on their units."""
_LOCKED = ("true", "locked")
"""Values of the attributes `locked` of Trados, memoQ and Phrase."""
_SEGMENT_MARK = re.compile(r"""<(?:[\w.-]+:)?mrk\s[^>]*\bmtype\s*=\s*["']seg["'][^>]*>""")
_END, _BEHIND = sys.maxsize - 1, sys.maxsize
"""The order of the end of a target that is inserted, and of what follows it."""


class _Mark(NamedTuple):
    """A mark of a segment (`<mrk mtype="seg">`) with its bytes in the document."""

    mid: str
    line: int
    start: int
    inner: int
    """The byte behind its start tag."""
    close: int
    """The byte of its end tag."""
    stop: int


class _Content(NamedTuple):
    """A source or a target with its bytes in the document."""

    data: bytes
    """Its content."""
    start: int
    inner: int
    """The byte behind its start tag."""
    stop: int
    attributes: Mapping[str, str]
    marks: tuple[_Mark, ...]

    @property
    def raw(self) -> str:
        return self.data.decode("utf-8")

    def marked(self, mark: _Mark) -> str:
        """Return the content of a mark."""
        return self.data[mark.inner - self.inner : mark.close - self.inner].decode("utf-8")

    @property
    def mids(self) -> set[str]:
        return {mark.mid for mark in self.marks}


class _Part(NamedTuple):
    """A text that is translated as one: the whole source of a unit, or one of its marks."""

    line: int
    source: str
    """With mark-up, as the target."""
    target: str
    translated: bool
    mark: _Mark | None = None
    """Its mark in the source, if it is written by marks."""


class _Slot(NamedTuple):
    """Where a part is written, and what stands around it."""

    start: int
    stop: int
    before: bytes = b""
    after: bytes = b""
    order: int = 0


@dataclass
class _Translatable:
    """A `trans-unit` of XLIFF 1.2, or a `segment` of XLIFF 2 with what its unit has."""

    line: int
    start: int
    attributes: Mapping[str, str]
    version: int
    translate: bool
    swapped: bool
    """Whether the languages of the file are those of the config in the other direction."""
    source: _Content | None = None
    target: _Content | None = None
    divided: _Content | None = None
    """`seg-source`, which stands between source and target."""
    tool_states: dict[str, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    """The elements `sdl:seg` of Trados by their ids, the `mid` of marks: their first bytes and attributes."""
    repeated: bool = False
    notes: tuple[int, bool] = (0, False)
    """Where a note on its unit goes (2.x), and whether the unit has notes already."""

    @property
    def state(self) -> str:
        if self.version == 2:
            return self.attributes.get("state", "")
        return self.target.attributes.get("state", "") if self.target else ""

    @property
    def structure(self) -> _Content:
        """The source with its marks, if it has any."""
        assert self.source is not None
        return self.divided if self.divided and self.divided.marks else self.source

    @property
    def behind(self) -> int:
        """The byte behind the source, at which a target is inserted."""
        assert self.source is not None
        return max(self.source.stop, self.divided.stop if self.divided else 0)

    @cached_property
    def by_marks(self) -> bool:
        """Whether the marks of the target are among those of the source."""
        return self.target is not None and bool(self.target.marks) and self.target.mids <= self.structure.mids

    def parts(self) -> list[_Part]:
        """Return the parts that are written: the marks of the source that have text, or the whole source if it has no marks."""
        assert self.source is not None
        content = self.structure
        marks = [mark for mark in content.marks if _text(content.marked(mark)).strip()]
        if not marks:
            return [self._whole()]
        if not self.by_marks:
            whole = self._whole()
            return [whole._replace(line=mark.line, source=content.marked(mark), mark=mark) for mark in marks]
        assert self.target is not None
        found = {mark.mid: self.target.marked(mark) for mark in self.target.marks}
        return [self._part(mark.line, content.marked(mark), found.get(mark.mid, ""), mark) for mark in marks]

    def pairs(self) -> list[_Part]:
        """Return the parts that are read: as those that are written, but a whole unit where the target is not divided like it."""
        whole = self._whole()
        return self.parts() if self.by_marks or not _text(whole.target).strip() else [whole]

    def _whole(self) -> _Part:
        assert self.source is not None
        return self._part(self.line, self.source.raw, self.target.raw if self.target else "", None)

    def _part(self, line: int, source: str, target: str, mark: _Mark | None) -> _Part:
        return _Part(line, source, target, self.state not in _TO_DO and bool(_text(target).strip()), mark)

    def skipped(self, part: _Part) -> str:
        """Return the reason why a part is no pair; an empty text for a pair."""
        if not self.translate:
            return NOT_FOR_TRANSLATION
        if self.repeated:
            return REPEATED_ID
        if not part.translated:
            return UNTRANSLATED
        return FUZZY if self.needs_review or self.is_unreviewed(part) else ""

    @property
    def needs_review(self) -> bool:
        return self.state.startswith("needs-") or self.state == "initial"

    def is_unreviewed(self, part: _Part) -> bool:
        """Return whether a tool states that a part is not finished; of a whole unit, that one of its parts is not."""
        tags = [self.attributes, *(attributes for _, attributes in self.tool_tags(part))]
        named = ((name.rpartition(":"), value) for tag in tags for name, value in tag.items())
        return any(value in _UNREVIEWED.get(name, ()) for (prefix, _, name), value in named if prefix or name == "conf")

    def is_locked(self, part: _Part) -> bool:
        """Return whether a tool states that a part must not be changed."""
        tags = [self.attributes, *(attributes for _, attributes in self.tool_tags(part))]
        return any(name.rpartition(":")[2] == "locked" and value in _LOCKED for tag in tags for name, value in tag.items())

    def tool_tags(self, part: _Part) -> list[tuple[int, Mapping[str, str]]]:
        """Return the elements of `tool_states` of a part; of a whole unit, all."""
        if part.mark is None:
            return list(self.tool_states.values())
        return [self.tool_states[part.mark.mid]] if part.mark.mid in self.tool_states else []


@dataclass
class _Unit:
    """A `unit` of XLIFF 2, whose segments share its notes."""

    repeated: bool
    notes: tuple[int, bool] | None = None
    segments: list[_Translatable] = field(default_factory=list)


class _Parser:
    """Collects the elements of a file into what is translated in it."""

    def __init__(self, name: str, languages: Languages | None) -> None:
        self._name = name
        self._languages = languages
        self.elements = Elements(name)
        self._path = list[tuple[str, bool]]()
        """The open elements, each with whether it is to be translated."""
        self._version = 1
        self._prefix = ""
        self._default: tuple[str | None, str | None] = None, None
        self._swapped = False
        self._ids = set[int]()
        self._unit: _Unit | None = None
        self._found: _Translatable | None = None
        self._content: tuple[int, Mapping[str, str]] = 0, {}
        self._marks = list[_Mark]()
        self._mark: tuple[int, Element] | None = None
        """The open mark with the number of elements that are open, itself included."""

    def translatables(self, blocks: Iterable[bytes]) -> Iterator[_Translatable]:
        for element in self.elements.read(blocks):
            name = element.name.removeprefix(self._prefix)
            if element.attributes is not None:
                self._begin(name, element, element.attributes)
            else:
                self._path.pop()
                yield from self._end(name, element)

    def _begin(self, name: str, element: Element, attributes: Mapping[str, str]) -> None:
        if not self._path:
            name = self._root(element, attributes)
        inherited = self._path[-1][1] if self._path else True
        stated = attributes.get("translate") if name in (*_CONTAINERS, "trans-unit") else None
        translate = inherited if stated is None else stated != "no"
        parent = self._path[-1][0] if self._path else ""
        self._path.append((name, translate))
        if name == "file":
            self._file(element, attributes)
        elif name == "unit" and self._version == 2:
            self._unit = _Unit(self._is_repeated(attributes.get("id")))
            self.elements.keep(element.start)
        elif name == ("trans-unit" if self._version == 1 else "segment"):
            self._found = _Translatable(element.line, element.start, attributes, self._version, translate, self._swapped)
            if self._version == 1:
                self.elements.keep(element.start)
                self._found.repeated = self._is_repeated(attributes.get("id"))
        elif name in _SIDES and parent in ("trans-unit", "segment"):
            self._content = element.start, attributes
            self._marks = []
        elif self._found is not None and self._version == 1:
            self._begin_mark(name, parent, element, attributes)
        if self._unit is not None and name in ("originalData", "segment", "ignorable") and self._unit.notes is None:
            self._unit.notes = element.start, False

    def _begin_mark(self, name: str, parent: str, element: Element, attributes: Mapping[str, str]) -> None:
        """Note the begin of a mark, or what Trados states of one."""
        assert self._found is not None
        if name == "mrk" and attributes.get("mtype") == "seg" and self._mark is None:
            self._mark = len(self._path), element
        elif name.endswith(":seg") and parent.endswith(":seg-defs") and "id" in attributes:
            self._found.tool_states[attributes["id"]] = element.start, attributes

    def _end_mark(self, element: Element) -> None:
        """Keep the mark that ends."""
        assert self._mark is not None
        _, begin = self._mark
        self._mark = None
        inner = self.elements.tag_end(begin.start)
        empty = self.elements.is_empty(begin.start)
        ends = (inner, inner) if empty else (element.start, self.elements.tag_end(element.start))
        self._marks.append(_Mark((begin.attributes or {}).get("mid", ""), begin.line, begin.start, inner, *ends))

    def _root(self, element: Element, attributes: Mapping[str, str]) -> str:
        prefix, colon, name = element.name.rpartition(":")
        if name != "xliff":
            self._fail(element, "the element xliff", f"{element.name}; it is no XLIFF file")
        self._prefix = prefix + colon
        version = attributes.get("version", "1.2")
        if version[:2] not in ("1.", "2."):
            self._fail(element, "XLIFF 1.2 or 2.x", f"version {version}; convert it")
        self._version = int(version[0])
        self._default = attributes.get("srcLang"), attributes.get("trgLang")
        return name

    def _file(self, element: Element, attributes: Mapping[str, str]) -> None:
        found = self._default
        if self._version == 1:
            found = attributes.get("source-language"), attributes.get("target-language")
        self._ids.clear()
        if self._languages is not None:
            self._swapped = self._is_swapped(element, found, self._languages)

    def _is_swapped(self, element: Element, found: tuple[str | None, str | None], languages: Languages) -> bool:
        for swapped, wanted in ((False, languages), (True, languages[::-1])):
            if all(code is None or is_language(code, one) for code, one in zip(found, wanted, strict=True)):
                return swapped
        shown = " and ".join(code or "no language" for code in found)
        remedy = "leave the file out, or correct the languages of the config"
        return self._fail(element, f"a file in {languages[0]} and {languages[1]}", f"{shown}; {remedy}")

    def _fail(self, element: Element, expected: str, got: str) -> NoReturn:
        raise DocumentError(f"{self._name}, line {element.line}: expected {expected}, got {got}")

    def _is_repeated(self, identifier: str | None) -> bool:
        if identifier is None:
            return False
        known = len(self._ids)
        self._ids.add(hash(identifier))
        return known == len(self._ids)

    def _end(self, name: str, element: Element) -> Iterator[_Translatable]:
        parent = self._path[-1][0] if self._path else ""
        found = self._found
        if self._mark is not None and self._mark[0] == len(self._path) + 1:
            self._end_mark(element)
        elif found is not None and name in _SIDES and parent in ("trans-unit", "segment"):
            if getattr(found, _SIDES[name]) is not None:
                self._fail(element, f"one {name} in a unit", "another one; remove it")
            setattr(found, _SIDES[name], self._read(element))
        elif name == "notes" and self._unit is not None and parent == "unit":
            self._unit.notes = element.start, True
        elif name == "trans-unit" and found is not None:
            self._found = None
            self.elements.keep(None)
            yield from [found] if found.source is not None else []
        elif name == "segment" and found is not None and self._unit is not None:
            self._unit.segments.append(found)
            self._found = None
        elif name == "unit" and self._unit is not None:
            unit, self._unit = self._unit, None
            for segment in unit.segments:
                segment.notes = unit.notes or (0, False)
                segment.repeated = unit.repeated
            yield from (segment for segment in unit.segments if segment.source is not None)
            self.elements.keep(None)

    def _read(self, element: Element) -> _Content:
        elements, (start, attributes) = self.elements, self._content
        inner = elements.tag_end(start)
        if elements.is_empty(start):
            return _Content(b"", start, inner, inner, attributes, ())
        marks = self._marks if len({mark.mid for mark in self._marks if mark.mid}) == len(self._marks) else []
        data = elements.between(inner, element.start)
        return _Content(data, start, inner, elements.tag_end(element.start), attributes, tuple(marks))


def _text(raw: str) -> str:
    return _inline(raw).text


def _inline(raw: str) -> Inline:
    """Return the text of a source or target, without marks of segments."""
    return read_inline(raw, ("mrk",) if _SEGMENT_MARK.search(raw) else ())


def units(blocks: Iterable[bytes], name: str, languages: Languages | None) -> Iterator[Unit]:
    """Yield the units of a file, those that are not pairs with the reason; see the rules of this module.

    A file of the opposite direction has its sides exchanged. Without `languages` they are not compared. Raises DocumentError for a
    document that is no XLIFF file, cannot be read, or is in other languages.
    """
    for found in _Parser(name, languages).translatables(as_utf8(blocks, name)):
        for part in found.pairs():
            sides = _inline(part.source), _inline(part.target)
            yield Unit(part.line, *shortened_pair(*(sides[::-1] if found.swapped else sides)), found.skipped(part))


def languages_of(blocks: Iterable[bytes], name: str) -> list[str]:
    """Return the languages that a file states, that of the source first."""
    for element in Elements(name).read(as_utf8(blocks, name)):
        attributes = element.attributes or {}
        for keys in (("srcLang", "trgLang"), ("source-language", "target-language")):
            if keys[0] in attributes:
                return [attributes[key] for key in keys if key in attributes]
    return []


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the units of a document in UTF-8. Raises DocumentError as `units` does, and for a file of the opposite direction."""
    found = list[Segment]()
    for one in _Parser(name, languages).translatables(in_utf8(data)):
        if one.swapped:
            raise DocumentError(
                f"{name}, line {one.line}: expected a file from {languages[0]} to {languages[1]}, got one of the opposite "
                "direction; use another system"
            )
        if one.translate:
            parts = [part for part in one.parts() if not one.is_locked(part)]
            slots, shared = _slots(data, one, parts)
            found += [_segment(data, one, part, slot, shared) for part, slot in zip(parts, slots, strict=True)]
    return found


def _segment(data: bytes, found: _Translatable, part: _Part, slot: _Slot, shared: list[Edit]) -> Segment:
    inline = _inline(part.source)

    def write(translation: str, problem: str) -> list[Edit]:
        content = part.source if translation == inline.text else restored(translation, inline)
        edit = Edit(slot.start, slot.stop, slot.before + content.encode() + slot.after, slot.order)
        return [edit, *shared, *_states(data, found, part, problem), *(_note(data, found, problem) if problem else [])]

    return Segment(part.line, inline.text, write, inline.tags, part.translated)


def _slots(data: bytes, found: _Translatable, parts: list[_Part]) -> tuple[list[_Slot], list[Edit]]:
    """Return where the parts of a target are written, and the edits that each of them needs."""
    marks = [part.mark for part in parts if part.mark is not None]
    if found.by_marks and marks:
        return _present(data, found, marks), []
    assert found.source is not None
    name = f"{_prefix(data, found.source)}target"
    target = found.target
    begin = list[Edit]()
    if target is None:
        position = found.behind
        start = indentation(data, found.source.start) + f"<{name}".encode()
        begin = [Edit(position, position, start), Edit(position, position, b">", 2)]
    elif target.inner == target.stop:  # <target/>
        position = target.stop
        begin = [Edit(_tag_close(data, target.start, position), position, b">")]
    else:
        position = target.inner + len(target.data)
        begin = [Edit(target.inner, position, b"")]
    end = b"" if target is not None and target.inner < target.stop else f"</{name}>".encode()
    around = [b"", b""]
    if marks:
        content = found.structure
        starts = [content.inner, *(mark.close for mark in marks)]
        stops = [*(mark.inner for mark in marks), content.inner + len(content.data)]
        around = [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
    slots = [_Slot(position, position, before, b"", 3 + number) for number, before in enumerate(around[:-1])]
    return slots[: len(parts)], [*begin, Edit(position, position, around[-1] + end, _END)]


def _present(data: bytes, found: _Translatable, marks: list[_Mark]) -> list[_Slot]:
    """Return where marks of the source are in a target: in place of the same one, or else behind the one that they follow."""
    assert found.target is not None
    present = {mark.mid: mark for mark in found.target.marks}
    position, first = found.target.marks[0].start, True
    slots = list[_Slot]()
    for number, mark in enumerate(marks):
        own = present.get(mark.mid)
        place = own or mark
        begin = data[place.start : place.inner]
        end = b"</" + begin[1:].split(maxsplit=1)[0] + b">"
        if place.inner == place.stop:  # <mrk/>
            begin = begin[:-2].rstrip() + b">"
        if own is not None:
            slots.append(_Slot(own.start, own.stop, begin, end))
            position, first = own.stop, False
        elif first:
            slots.append(_Slot(position, position, begin, end + b" ", number))
        else:
            slots.append(_Slot(position, position, b" " + begin, end, number))
    return slots


def _states(data: bytes, found: _Translatable, part: _Part, problem: str) -> Iterator[Edit]:
    """Yield the edits of the state of a unit, and of what Trados states of a part. XLIFF 2 has no state for a translation to be
    reviewed, but one of a tool. If parts of a unit are to be reviewed, it is."""
    review = "needs-review-translation"
    if found.version == 2:
        if problem or found.state == "initial":
            yield _attribute(data, found.start, "state", "translated")
        if problem:
            yield _attribute(data, found.start, "subState", f"fewstep:{review}", 1)
    elif found.target is None:
        if problem:
            yield Edit(found.behind, found.behind, f' state="{review}"'.encode(), 1)
    elif problem:
        yield _attribute(data, found.target.start, "state", review, 1)
    elif found.state in _TO_DO or found.needs_review:
        yield _attribute(data, found.target.start, "state", "translated")
    for start, _ in found.tool_tags(part):
        yield _attribute(data, start, "conf", "Draft")


def _attribute(data: bytes, start: int, name: str, value: str, order: int = 0) -> Edit:
    """Return the edit that gives an attribute a value in the tag that begins at a byte."""
    stop = tag_end(data, start)
    if found := re.compile(rf"""\s{name}\s*=\s*(?:"([^"]*)"|'([^']*)')""".encode()).search(data, start, stop):
        return Edit(*found.span(found.lastindex or 0), value.encode(), order)
    position = _tag_close(data, start, stop)
    return Edit(position, position, f' {name}="{value}"'.encode(), order)


def _tag_close(data: bytes, start: int, stop: int) -> int:
    """Return the byte of a tag behind its name and attributes."""
    return start + len(data[start:stop].rstrip(b">/ \t\r\n"))


def _note(data: bytes, found: _Translatable, problem: str) -> list[Edit]:
    """Return the edit that states why a translation is to be reviewed: a note behind the target (1.2), or on the unit (2.x)."""
    assert found.source is not None
    prefix = _prefix(data, found.source)
    text = escaped_text(problem)
    if found.version == 1:
        position = found.target.stop if found.target else found.behind
        gap = indentation(data, found.source.start).decode()
        return [Edit(position, position, f'{gap}<{prefix}note from="fewstep">{text}</{prefix}note>'.encode(), _BEHIND)]
    position, has_notes = found.notes
    gap = indentation(data, position).decode()
    note = Edit(position, position, f'<{prefix}note category="fewstep">{text}</{prefix}note>{gap * has_notes}'.encode(), 1)
    if has_notes:
        return [note]
    begin = f"<{prefix}notes>"
    end = f"</{prefix}notes>{gap}"
    return [Edit(position, position, begin.encode()), note, Edit(position, position, end.encode(), 2)]


def _prefix(data: bytes, source: _Content) -> str:
    """Return the prefix of the names of elements."""
    return data[source.start + 1 : source.inner].partition(b"source")[0].decode()
