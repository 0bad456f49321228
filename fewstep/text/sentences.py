"""Splitting of texts into sentences, and joining of their translations.

A network translates one sentence at a time; given several in one source, it writes one. The rules of languages come from sentencex
(Wikimedia; rules and abbreviations for some 40 languages, and for others those of a related language).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fewstep.text.languages import WITHOUT_SPACES, base_code

WINDOW = 2_000
"""Characters that are split at once. The time of sentencex grows with the square of the number of open quotation marks."""
_OTHER_SPACES = re.compile(r"[^\S ]")
_SURROGATES = re.compile("[\ud800-\udfff]")  # sentencex takes valid Unicode alone
_NO_END = {
    "de": re.compile(r"(?<!\d)\d{1,2}\.\s*$"),  # ordinals: all nouns are capitalised, so that "3. Auflage" looks like an end
    "fr": re.compile(r"(?<!\w)M{1,2}\.\s*$"),  # Monsieur, Messieurs
}
"""Ends of pieces that are no ends of sentences, where sentencex lacks the rule."""


class Sentences(NamedTuple):
    """The sentences of a text."""

    sentences: list[str]
    gaps: list[str]
    """The white space between them, one fewer."""

    def join(self, outputs: Sequence[str], language: str) -> str:
        """Return the outputs for the sentences as one text in `language`, with the gaps of the source.

        Between languages with and without spaces between words, single spaces are added or left out.
        """
        spaced = base_code(language) not in WITHOUT_SPACES
        usual = {"": " "} if spaced else {" ": ""}
        gaps = [usual.get(gap, gap) for gap in self.gaps]
        return "".join(part for pair in zip(outputs, [*gaps, ""], strict=False) for part in pair)


def unsplit(text: str) -> Sentences:
    """Return a text as one sentence."""
    return Sentences([text], [])


def split(text: str, language: str) -> Sentences:
    """Return the sentences of a text in `language`. The ends of lines are ends of sentences.

    White space at the ends of the text is left out; the rest of the text is the sentences and the gaps in turn. A blank text has no
    sentences.
    """
    found = list[str]()
    gaps = list[str]()
    gap = ""
    for line in text.splitlines(keepends=True):
        if not line.strip():
            gap += line
            continue
        for piece in _pieces(line, base_code(language)):
            sentence = piece.strip()
            begin = len(piece) - len(piece.lstrip())
            if not sentence:
                gap += piece
                continue
            if found:
                gaps.append(gap + piece[:begin])
            found.append(sentence)
            gap = piece[begin + len(sentence) :]
    return Sentences(found, gaps)


def _pieces(line: str, language: str) -> Iterator[str]:
    """Yield the sentences of a line, each with the white space around it."""
    # sentencex fails where a space of several bytes stands in front of a full stop.
    plain = _SURROGATES.sub("x", _OTHER_SPACES.sub(" ", line))
    start, begun = 0, 0
    while start < len(line):
        window = plain[start : start + WINDOW]
        found = list(_joined(_segmented(window, language), language))
        if start + len(window) < len(line):
            # The last piece goes on behind the window; without another one, the sentence is longer than the window.
            found = found[:-1] if len(found) > 1 else []
            if not found:
                start += window.rfind(" ") + 1 or len(window)
                continue
        for piece in found:
            start += len(piece)
            yield line[begun:start]
            begun = start


def _segmented(text: str, language: str) -> list[str]:
    from sentencex import segment

    try:
        return list(segment(language, text))
    except BaseException as error:  # a defect of sentencex raises a BaseException
        if type(error).__name__ != "PanicException":
            raise
        return [text]


def _joined(pieces: list[str], language: str) -> Iterator[str]:
    """Yield pieces, those that do not end a sentence together with the next one."""
    no_end = _NO_END.get(language)
    held = ""
    for piece in pieces:
        held += piece
        if not (no_end and no_end.search(piece)):
            yield held
            held = ""
    if held:
        yield held
