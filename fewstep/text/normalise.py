"""The normalisation of text.

| characters | treatment |
|---|---|
| all | composed (NFC) |
| spaces, tabs, ends of lines and pages, and SentencePiece's U+2581 | a run is one space; none at the ends |
| no-break spaces of French (U+00A0, U+202F) | kept, one of a run; a run with another space is one space |
| control characters, U+FEFF | removed |
| invisible characters without a meaning: soft hyphen, zero-width space, word joiner, marks of direction | removed |
| joiners (U+200C, U+200D) | kept between letters of scripts that need them (Arabic, Indic, ...) and in emoji, else removed |

Texts of training and use are normalised alike.
"""

from __future__ import annotations

import re
import unicodedata

INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
"""Removed characters, as the inside of a character class."""
CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
"""Removed control characters, as the inside of a character class; the others separate words."""
NO_BREAK = "\u00a0\u202f"
"""No-break spaces that are kept."""
JOINERS = "\u200c\u200d"

# Scripts without a use for joiners: Latin, Greek, Cyrillic, kana, Han, Hangul; and spaces and punctuation.
_WITHOUT_JOINERS = "\x00-\u058f\u1e00-\u200b\u200e-\u206f\u3000-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef"
_NEEDLESS_JOINERS = re.compile(rf"(?:^|(?<=[{_WITHOUT_JOINERS}]))[{JOINERS}]+|[{JOINERS}]+(?=\Z|[{_WITHOUT_JOINERS}])")
_REMOVED = re.compile(f"[{CONTROLS}{INVISIBLE}]+")
_SPACES = re.compile(r"[\s\u2581]+")


MAX_MARKS = 30
"""Combining marks in a row, as many as Unicode's stream-safe text has (Unicode Standard Annex 15, section 13)."""
_JOINER = "\N{COMBINING GRAPHEME JOINER}"
# All combining marks are among these characters; no letter, digit or white space is.
_MAYBE_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MAX_MARKS + 1},}}")


def nfc(text: str) -> str:
    """Return the canonical composition of a text (NFC), in time that is linear in its length.

    Composition sorts the combining marks that follow a character, in the square of their number. After each `MAX_MARKS` of them a
    combining grapheme joiner, which is invisible, is inserted, as in stream-safe text.
    """
    return unicodedata.normalize("NFC", _MAYBE_MARKS.sub(_stream_safe, text))


def _stream_safe(found: re.Match[str]) -> str:
    parts = list[str]()
    marks = 0
    for character in found[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks > MAX_MARKS:
            parts.append(_JOINER)
            marks = 1
        parts.append(character)
    return "".join(parts)


def normalise(text: str) -> str:
    """Return a text by the rule of this module. The function is idempotent."""
    composed = nfc(text)
    kept = _NEEDLESS_JOINERS.sub("", _REMOVED.sub("", composed))
    if kept != composed:
        kept = nfc(kept)  # a mark may now follow its letter
    return _SPACES.sub(_space, kept).strip(f" {NO_BREAK}")


def _space(run: re.Match[str]) -> str:
    return run[0][0] if set(run[0]) <= set(NO_BREAK) else " "
