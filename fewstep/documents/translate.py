"""Translation of a document in place.

A segment is split into sentences; a sentence with letters is translated, and its translation must have the placeholders and inline
elements of its source, each as often. A translation that lacks one is replaced by the next hypothesis with all of them; without
such a hypothesis the first one stays, and the segment is marked with the problem.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.documents import html, markdown, plain, po, tmx, xliff
from fewstep.documents.document import DocumentError, Edit, Languages, Segment, edited
from fewstep.documents.elements import encoding_of
from fewstep.documents.markup import Inline, ShortTags, flat, occurrences
from fewstep.text.format import TextFormatError, check_text
from fewstep.text.placeholders import changes, placeholders
from fewstep.text.sentences import Sentences, split, unsplit
from fewstep.translation import SourceTooLongError, Translation

if TYPE_CHECKING:
    from fewstep.config.search import SearchConfig
    from fewstep.system.system import System

log = logging.getLogger("fewstep")

FORMATS = {
    "po": po.segments,
    "tmx": tmx.segments,
    "xliff": xliff.segments,
    "html": html.segments,
    "txt": plain.segments,
    "md": markdown.segments,
}
"""The function that finds the segments of a document in UTF-8, by format."""
XML = ("tmx", "xliff")
"""Formats that may be in UTF-16."""

MAX_TAGS = 2000
"""Inline elements of a text, each of which is looked for at each place of a translation."""

MAX_CHARACTERS = 1 << 20
"""Characters of a text, which takes 50 times as much memory until it is divided into sentences."""

_FORMATTED = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,")
_MESSAGE_FORMAT = "keywords of a message in ICU format, such as plural and other, may have been translated"
_LETTER = re.compile(r"[^\W\d_]")
_LINE_END = re.compile(r"[\r\n]")


@dataclass(frozen=True)
class Document:
    """A document in UTF-8 with its segments."""

    data: bytes
    encoding: str
    """The encoding in which it is written back."""
    segments: list[Segment]


class Outcome(NamedTuple):
    """A translated document."""

    data: bytes
    translated: int
    """Segments that were translated."""
    kept: int
    """Segments that had a translation."""
    marked: int
    """Segments whose translation is to be reviewed."""


class _Shortened(NamedTuple):
    """A segment with short tags in place of elements with their content."""

    segment: Segment
    full: Callable[[str], str]
    """The function that puts the elements back into a text."""


class _Sentence(NamedTuple):
    """A sentence of a segment that is translated."""

    line: int
    text: str
    kept: Counter[str]
    """The tags and placeholders that its translation has to have."""
    tags: tuple[str, ...]
    """The tags of its segment."""


class _Parts(NamedTuple):
    """A segment in sentences."""

    head: str
    sentences: Sentences
    tail: str
    kept: list[Counter[str] | None]
    """For each sentence the tags and placeholders that its translation has to have; None for one that is not translated."""


def read_document(data: bytes, kind: str, name: str, languages: Languages) -> Document:
    """Return the document of a format of `FORMATS`. Raises DocumentError for one that cannot be read."""
    encoding = encoding_of(data, name) if kind in XML else "utf-8"
    if encoding == "utf-8":
        try:
            check_text(data, name)
            data.decode("utf-8")
        except TextFormatError as error:
            raise DocumentError(str(error)) from error
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise DocumentError(
                f"{name}, line {line}: expected UTF-8, got the byte 0x{data[error.start]:02x}; convert the file first "
                "(iconv -f ENCODING -t UTF-8 FILE)"
            ) from error
    else:
        try:
            data = data.decode(encoding).encode("utf-8")
        except UnicodeError as error:
            raise DocumentError(f"{name}: expected UTF-16, got an invalid character ({error}); repair the file") from error
    found = FORMATS[kind](data, name, languages)
    if long := next((one for one in found if len(one.text) > MAX_CHARACTERS), None):
        raise DocumentError(
            f"{name}, line {long.line}: expected at most {MAX_CHARACTERS:,} characters in a text, got {len(long.text):,}; divide it"
        )
    if long := next((one for one in found if len(one.tags) > MAX_TAGS), None):
        raise DocumentError(
            f"{name}, line {long.line}: expected at most {MAX_TAGS:,} inline elements in a text, got {len(long.tags):,}; divide it"
        )
    return Document(data, encoding, found)


def translate_document(
    document: Document,
    system: System,
    search: SearchConfig | str | None = None,
    *,
    everything: bool = False,
    batch: int = 64,
    threads: int | None = None,
    refuse_long: bool = False,
) -> Outcome:
    """Return the document with the translations of its segments.

    Args:
        document: The document, whose text is in the system's source language.
        system: The system.
        search: As in `System.translate`. With a beam, its further hypotheses are used for sentences that lose a placeholder.
        everything: Translate also segments that have a translation.
        batch: Sentences that are translated together.
        threads: As in `System.translate`.
        refuse_long: As in `System.translate`.

    Raises DocumentError for a sentence that is too long, with its line, and otherwise as `System.translate` does.
    """
    shortened = [_shortened(one) for one in document.segments if one.text.strip() and (everything or not one.translated)]
    chosen = [one.segment for one in shortened]
    parts = [_parts(one, system) for one in chosen]
    sentences = [
        _Sentence(segment.line, text, kept, _tags(segment))
        for segment, part in zip(chosen, parts, strict=True)
        for text, kept in zip(part.sentences.sentences, part.kept, strict=True)
        if kept is not None
    ]
    translator = _Translator(system, search, threads, refuse_long)
    found = (one for start in range(0, len(sentences), batch) for one in translator.translate(sentences[start : start + batch]))
    edits = list[Edit]()
    marked = 0
    for (segment, full), part in zip(shortened, parts, strict=True):
        given = part.sentences.sentences
        outputs = [(text, "") if kept is None else next(found) for text, kept in zip(given, part.kept, strict=True)]
        problems = [problem for _, problem in outputs if problem] + [_MESSAGE_FORMAT] * bool(_FORMATTED.search(segment.text))
        problem = full("; ".join(dict.fromkeys(problems)))
        if problem:
            marked += 1
            log.warning("line %d: %s", segment.line, problem)
        written = [text for text, _ in outputs]
        joined = part.sentences.join(written, system.target_language)
        edits += segment.write(segment.text if written == given else part.head + joined + part.tail, problem)
    data = edited(document.data, edits)
    if document.encoding != "utf-8":
        data = data.decode("utf-8").encode(document.encoding)
    return Outcome(data, len(chosen), sum(one.translated for one in document.segments) * (not everything), marked)


def _shortened(segment: Segment) -> _Shortened:
    """Return a segment with short tags in place of elements with their content."""
    given = Inline(segment.text, segment.tags)
    tags = ShortTags(given)
    if not tags:
        return _Shortened(segment, str)

    def write(translation: str, problem: str) -> list[Edit]:
        return segment.write(tags.full(translation), problem)

    text, ranges = tags.shortened(given)
    return _Shortened(replace(segment, text=text, tags=ranges, write=write), tags.full)


def _tags(segment: Segment) -> tuple[str, ...]:
    """Return the different tags of a segment."""
    return tuple({flat(segment.text[start:stop]): None for start, stop in segment.tags})


def _parts(segment: Segment, system: System) -> _Parts:
    """Split a segment into sentences whose ends are outside of its placeholders and tags."""
    text = _LINE_END.sub(" ", segment.text) if segment.soft_breaks else segment.text
    fixed = list(_fixed(text, segment.tags))
    masked = list(text)
    for start, stop in fixed:
        masked[start:stop] = "x" * (stop - start)
    whole = "".join(masked)
    found = split(whole, system.source_language) if system.task == "translation" else unsplit(whole.strip())
    position = len(text) - len(text.lstrip())
    head = segment.text[:position]
    sentences = list[str]()
    gaps = list[str]()
    kept = list[Counter[str] | None]()
    for sentence, gap in zip(found.sentences, [*found.gaps, ""], strict=True):
        end = position + len(sentence)
        inside = [(start, stop) for start, stop in fixed if position <= start and stop <= end]
        translated = _has_letters(text, position, end, inside)
        kept.append(Counter(flat(text[start:stop]) for start, stop in inside) if translated else None)
        sentences.append(text[position:end])
        gaps.append(segment.text[end : end + len(gap)])
        position = end + len(gap)
    return _Parts(head, Sentences(sentences, gaps[:-1]), segment.text[position:], kept)


def _fixed(text: str, tags: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that are tags, or placeholders between them, in order."""
    position = 0
    for start, stop in (*tags, (len(text), len(text))):
        yield from ((position + one.start(), position + one.end()) for one in placeholders(text[position:start]))
        if stop > start:
            yield start, stop
        position = stop


def _has_letters(text: str, start: int, stop: int, fixed: Sequence[tuple[int, int]]) -> bool:
    """Return whether a part of a text has letters outside of some ranges."""
    ends = [start, *(end for _, end in fixed)]
    return any(_LETTER.search(text, begin, end) for begin, end in zip(ends, [*(begin for begin, _ in fixed), stop], strict=True))


class _Translator:
    """Translates sentences, and those that lose a placeholder again."""

    def __init__(self, system: System, search: SearchConfig | str | None, threads: int | None, refuse_long: bool) -> None:
        self._system = system
        self._search = system.chosen_search(search)
        self._options: dict[str, Any] = {"threads": threads, "one_sentence_per_line": True, "refuse_long": refuse_long}
        self._wider = next(system.wider_searches(self._search), None)

    def translate(self, sentences: Sequence[_Sentence]) -> Iterator[tuple[str, str]]:
        """Yield the translation of each sentence and what is wrong with it."""
        texts = [one.text for one in sentences]
        ranked = [[one] for one in self._outputs(sentences, texts, self._search)]
        # Other hypotheses of a sentence that was cut lack its end as well.
        wrong = [number for number, one in enumerate(sentences) if not ranked[number][0].cut and _problem(one, ranked[number][0])]
        if wrong and self._wider is not None:
            found = self._system.hypotheses([texts[number] for number in wrong], None, self._wider, **self._options)
            for number, others in zip(wrong, found, strict=True):
                ranked[number] += others
        for sentence, outputs in zip(sentences, ranked, strict=True):
            right = next((output for output in outputs if not _problem(sentence, output)), None)
            yield (outputs[0].text, _problem(sentence, outputs[0])) if right is None else (right.text, "")

    def _outputs(self, sentences: Sequence[_Sentence], texts: list[str], search: SearchConfig) -> list[Translation]:
        try:
            return [ranked[0] for ranked in self._system.hypotheses(texts, None, search, **self._options)]
        except SourceTooLongError as error:
            raise DocumentError(f"line {sentences[error.line - 1].line}: {error.problem}") from error


def _problem(sentence: _Sentence, output: Translation) -> str:
    """Return what a translation lacks or has in addition of tags and placeholders; empty if it is right."""
    if output.cut:
        return f"{output.cut} tokens of a long sentence were not read"
    tags = list(occurrences(output.text, sentence.tags))
    found = Counter(flat(output.text[start:stop]) for start, stop in _fixed(output.text, tags))
    if problem := changes(sentence.kept, found):
        return problem
    if output.put_back:
        return "a placeholder or a term was put where it is likely to stand"
    return "" if output.text.strip() else "the translation is empty"
