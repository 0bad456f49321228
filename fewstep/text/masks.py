"""Masks: tokens of the vocabulary that stand for placeholders of a text, on both sides of a pair.

`Open %s with `x`.` is `Open ⟦directive1⟧ with ⟦code1⟧.` for a network, which copies two tokens in place of two strings that it may
never have seen. A mask has a kind and a number; different placeholders of a kind are numbered in the order of the source, so that a
translation in another order is restored by the numbers. A vocabulary with masks has pieces of their names, which also state the
kinds that are masked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from fewstep.text.placeholders import PLACEHOLDER
from fewstep.text.terms import Term, shared_words, words

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

__all__ = ["KINDS", "Kind", "Masked", "complete", "counts", "kinds_of", "mask", "mask_pair", "restored", "settle", "symbols"]

Kind = Literal["code", "url", "tag", "reference", "role", "directive", "entity", "number", "term"]
"""Kinds of placeholders (`fewstep.text.placeholders`), numbers in digits, and terms of a glossary."""
KINDS: tuple[Kind, ...] = get_args(Kind)
COUNT = 8
"""Different placeholders of a kind in a text that have masks; further ones stay."""
_SYMBOL = re.compile(rf"⟦(?:{'|'.join(KINDS)})[1-{COUNT}]⟧")
_QUOTED = re.compile(r"`[^`\n]+`")
_CLOSING = " .!?…:;。！？：；"
"""Characters behind the last word of a sentence."""
_NUMBER = r"(?P<number>(?<![\w⟦.,])\d+(?:[.,]\d+)*(?!\w))"


class Masked(NamedTuple):
    """A text with masks, and the placeholder that each stands for."""

    text: str
    values: Mapping[str, str]


def symbols(kinds: Sequence[str]) -> list[str]:
    """Return the masks of some kinds."""
    return [_symbol(kind, number) for kind in kinds for number in range(1, COUNT + 1)]


def _symbol(kind: str, number: int) -> str:
    return f"⟦{kind}{number}⟧"


def kinds_of(pieces: SentencePieceProcessor) -> tuple[str, ...]:
    """Return the kinds that a vocabulary has masks for."""
    return tuple(kind for kind in KINDS if pieces.id_to_piece(pieces.piece_to_id(_symbol(kind, 1))) == _symbol(kind, 1))


@lru_cache(maxsize=2)
def _pattern(numbers: bool) -> re.Pattern[str]:
    return re.compile(f"{PLACEHOLDER.pattern} | {_NUMBER}", re.X) if numbers else PLACEHOLDER


class _Found(NamedTuple):
    """A placeholder or a term of a text."""

    start: int
    end: int
    kind: str
    value: str
    """The text that stands for it in a translation."""


def _found(text: str, kinds: Collection[str], terms: Iterable[Term]) -> list[_Found]:
    """Return the placeholders of some kinds, and the terms, in order. Placeholders of other kinds are not looked into."""
    matches = (one for one in _pattern("number" in kinds).finditer(text) if one.lastgroup in kinds)
    found = [_Found(*one.span(), str(one.lastgroup), one[0]) for one in matches]
    taken = [(one.start, one.end) for one in found]
    free = (one for one in terms if not any(start < one.end and one.start < end for start, end in taken))
    return sorted([*found, *(_Found(one.start, one.end, "term", one.target) for one in free)])


def mask(
    text: str,
    kinds: Collection[str],
    only: Collection[str] | None = None,
    beside: str = "",
    terms: Iterable[Term] = (),
) -> Masked:
    """Return a text whose placeholders of some kinds, and terms, have masks; of these only those in `only`, if it is given.

    Names of masks that stand in the text, or in the one beside it, stand for themselves.
    """
    if not kinds:
        return Masked(text, {})
    values = {literal: literal for literal in _SYMBOL.findall(text + beside)}
    chosen = dict[tuple[str, str], str]()
    parts = list[str]()
    position = 0
    for one in _found(text, kinds, terms):
        if only is not None and one.value not in only:
            continue
        key = (one.kind, one.value)
        if key not in chosen:
            name = next((name for name in symbols([one.kind]) if name not in values), "")
            if not name:
                continue
            chosen[key], values[name] = name, one.value
        parts += [text[position : one.start], chosen[key]]
        position = one.end
    return Masked("".join([*parts, text[position:]]), values)


def mask_pair(source: str, target: str, kinds: Collection[str], terms: bool = False) -> tuple[Masked, str]:
    """Return both sides of a pair with masks for the placeholders that occur in both, equally often.

    Others stay, so that each mask of a source has its place in the target. With `terms`, if `term` is one of the kinds, a share of
    the words that both sides have (`fewstep.text.terms`) are masked as well, so that a network learns what to do with terms.
    """
    if not kinds:
        return Masked(source, {}), target
    chosen = shared_words(source, target) if terms and "term" in kinds else frozenset()
    found = [[one for one in words(side) if one.target in chosen] if chosen else [] for side in (source, target)]
    sides = [_found(*side) for side in zip((source, target), (kinds, kinds), found, strict=True)]
    counts = [Counter(one.value for one in side) for side in sides]
    both = [value for value, count in counts[0].items() if counts[1][value] == count]
    masked = mask(source, kinds, both, target, found[0])
    names = {value: name for name, value in masked.values.items()}
    parts = list[str]()
    position = 0
    for one in sides[1]:
        if one.value in names:
            parts += [target[position : one.start], names[one.value]]
            position = one.end
    return masked, "".join([*parts, target[position:]])


def counts(text: str) -> Counter[str]:
    """Return the masks of a text."""
    return Counter(_SYMBOL.findall(text))


def complete(source: str, output: str, spaced: bool) -> tuple[str, int]:
    """Return an output with exactly the masks of its source, both with masks, and how many of them were put back.

    Masks that are written too often are left out. One that is missing is put where it would stand if the output ran in step with
    its source: behind the next word if the language of the output is `spaced`. A role is put in front of the text in backquotes
    that follows it in the source, with this text if the output does not have it.
    """
    wanted = counts(source)
    if wanted == counts(output):
        return output, 0
    parts = list[str]()
    position = 0
    for one in _SYMBOL.finditer(output):
        parts.append(output[position : one.start()].rstrip(" " if wanted[one[0]] < 1 else ""))
        if wanted[one[0]] > 0:
            wanted[one[0]] -= 1
            parts.append(one[0])
        position = one.end()
    text, missing = "".join([*parts, output[position:]]), 0
    written = counts(source) - wanted
    for one in _SYMBOL.finditer(source):
        if written[one[0]] > 0:
            written[one[0]] -= 1
        else:
            text, missing = _put(text, one, source, spaced), missing + 1
    return text, missing


def _put(text: str, missing: re.Match[str], source: str, spaced: bool) -> str:
    """Return a text with a mask or placeholder of its source at its likely place."""
    is_role = missing[0].startswith(("⟦role", ":")) and missing[0].endswith((":", "⟧"))
    quoted = _QUOTED.match(source, missing.end()) if is_role else None
    if quoted and (found := re.search(rf"(?<![⟧:]){re.escape(quoted[0])}", text)):
        return text[: found.start()] + missing[0] + text[found.start() :]
    place = round(missing.start() / len(source) * len(text))
    name = missing[0] + (quoted[0] if quoted else "")
    kept = [one.span() for pattern in (_SYMBOL, PLACEHOLDER, _QUOTED) for one in pattern.finditer(text)]
    inside = {at for start, stop in kept for at in range(start + 1, stop)}
    end = len(text.rstrip(_CLOSING))
    free = (one for one in range(place, end) if one not in inside and (not spaced or not one or text[one].isspace()))
    at = next(free, end)
    before = " " if at and (spaced or _touches(text[at - 1], name)) and not text[at - 1].isspace() else ""
    after = " " if (spaced and not at and text[:1].strip(_CLOSING)) or (text[at:] and _touches(text[at], name)) else ""
    return text[:at] + before + name + after + text[at:]


def _touches(neighbour: str, name: str) -> bool:
    """Return whether a placeholder would not be one beside a character."""
    return name[0] in ":`⟦" and (neighbour.isalnum() or neighbour in ":`_")


def settle(source: str, text: str, kinds: Collection[str], spaced: bool) -> tuple[str, int]:
    """Return a translation with exactly the placeholders of its source, of some kinds, and how many were changed.

    The marks of a placeholder that the source does not have are taken off, and one that is missing is put where it is likely to
    stand. What stands directly beside a word, so that it is no placeholder there, is set apart from it.
    """
    wanted = [one for one in PLACEHOLDER.finditer(source) if one.lastgroup in kinds]
    limit = 4 * len(wanted) + text.count("`") + 8
    for changed in range(limit):
        rest = Counter(one[0] for one in wanted)
        surplus = None
        for one in PLACEHOLDER.finditer(text):
            if one.lastgroup not in kinds:
                continue
            if rest[one[0]] < 1:
                surplus = surplus or one
            rest[one[0]] -= 1
        missing = next((one for one in reversed(wanted) if rest[one[0]] > 0), None)
        if surplus:
            text = _without_marks(text, surplus)
        elif missing is None:
            return text, changed
        elif (apart := _apart(text, missing[0])) != text:
            text = apart
        else:
            text = _put(text, missing, source, spaced)
    return text, limit


def _without_marks(text: str, surplus: re.Match[str]) -> str:
    """Return a text in which a placeholder is a word, or left out if it has none."""
    parts = surplus[0].split("`")
    word = surplus[0].strip("`") if surplus.lastgroup == "code" else parts[1] if surplus.lastgroup == "reference" else ""
    return " ".join((text[: surplus.start()] + word + text[surplus.end() :]).split(" "))


def _apart(text: str, placeholder: str) -> str:
    """Return a text with spaces between a placeholder and the words that it touches, where it touches some."""
    before = rf"(?<=[\w:])(?={re.escape(placeholder)})" if placeholder[0] in ":`" else r"(?!)"
    behind = rf"(?<={re.escape(placeholder)})(?=[\w`])" if placeholder[-1] == "`" else r"(?!)"
    return re.sub(rf"{before}|{behind}", " ", text)


def restored(text: str, values: Mapping[str, str], capital: bool = False) -> str:
    """Return an output with placeholders and terms in place of their masks. Masks that the source does not have are left out.

    With `capital`, a term at the beginning begins with a capital letter.
    """
    if "⟦" not in text:
        return text
    found = _SYMBOL.sub(lambda one: values.get(one[0], ""), text)
    return found[:1].upper() + found[1:] if capital and text.startswith("⟦term") else found
