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

Kind = Literal["code", "url", "tag", "reference", "role", "directive", "entity", "number", "term"]
"""Kinds of placeholders (`fewstep.text.placeholders`), numbers in digits, and terms of a glossary."""
KINDS: tuple[Kind, ...] = get_args(Kind)
COUNT = 8
"""Different placeholders of a kind in a text that have masks; further ones stay."""
_SYMBOL = re.compile(rf"⟦(?:{'|'.join(KINDS)})[1-{COUNT}]⟧")
_QUOTED = re.compile(r"`[^`\n]+`")
MOST_PUT = 100
"""Placeholders of a text that are put back: the time grows with the cube of their number."""
ROUNDS = 4
"""Times that a text is settled, since marks that are taken off may leave others."""
_ROLE = re.compile(r":[\w:.+-]+:")
_SIGNS = re.compile(r"[<>`{}$%&:]")
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
    taken = bytearray(len(text))
    for start, end, *_ in found:
        taken[start:end] = b"\1" * (end - start)
    free = (one for one in terms if 1 not in taken[one.start : one.end])
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
    """Return an output with exactly the masks of its source, both with masks, and how many of them were missing, of which at most
    `MOST_PUT` are put back.

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
    text = "".join([*parts, output[position:]])
    missing = 0
    written = counts(source) - wanted
    for one in _SYMBOL.finditer(source):
        if written[one[0]] > 0:
            written[one[0]] -= 1
        else:
            text = _put(text, one, source, spaced) if missing < MOST_PUT else text
            missing += 1
    return text, missing


def _put(text: str, missing: re.Match[str], source: str, spaced: bool) -> str:
    """Return a text with a mask of its source at its likely place."""
    quoted = _QUOTED.match(source, missing.end()) if missing[0].startswith("⟦role") else None
    if quoted and (found := re.search(rf"(?<!⟧){re.escape(quoted[0])}", text)):
        return text[: found.start()] + missing[0] + text[found.start() :]
    units = [one.span() for one in _SYMBOL.finditer(text)]
    return _inserted(text, missing[0] + (quoted[0] if quoted else ""), missing.start() / len(source), units, spaced)


def _inserted(text: str, name: str, share: float, units: Sequence[tuple[int, int]], spaced: bool) -> str:
    """Return a text with `name` behind a share of it: outside of units, and between words if the language is spaced."""
    inside = {at for start, stop in units for at in range(start + 1, stop)}
    end = max([len(text.rstrip(_CLOSING)), *(stop for _, stop in units)])
    free = (at for at in range(round(share * len(text)), end) if at not in inside and (not spaced or not at or text[at].isspace()))
    at = next(free, end)
    before = " " if at and (spaced or _joins(text[at - 1]) or text[at - 1] == ">") and not text[at - 1].isspace() else ""
    after = " " if text[at:] and ((spaced and not at and text[0] not in _CLOSING) or _joins(text[at])) else ""
    return text[:at] + before + name + after + text[at:]


def _joins(neighbour: str) -> bool:
    """Return whether a placeholder beside a character would be a part of a word."""
    return neighbour.isalnum() or neighbour in "_:`"


def settle(source: str, text: str, kinds: Collection[str], spaced: bool) -> tuple[str, int]:
    """Return a translation with exactly the placeholders of its source, of some kinds, and how many were not as they should be. A
    translation of a source with more than `MOST_PUT` is left as it is.

    The marks of a placeholder that the source does not have are taken off, and one that is missing is put where it is likely to
    stand, a role with its text. A placeholder is set apart from a word that it touches, of which it would be a part.
    """
    wanted = [one for one in PLACEHOLDER.finditer(source) if one.lastgroup in kinds]
    rest = Counter(one[0] for one in wanted)
    wrong = 0
    for _ in range(ROUNDS):
        written = _written(text, kinds)
        if rest == written:
            return text, wrong
        wrong = wrong or max(1, (rest - written).total() + (written - rest).total())
        if len(wanted) > MOST_PUT:
            return text, wrong
        text = _settled(source, text, wanted, kinds, spaced)
    if rest != _written(text, kinds) and rest == _written(apart := _set_apart(source, text, wanted, kinds, spaced), kinds):
        text = apart
    return text, wrong


def _written(text: str, kinds: Collection[str]) -> Counter[str]:
    """Return the placeholders of some kinds that a text has."""
    return Counter(one[0] for one in PLACEHOLDER.finditer(text) if one.lastgroup in kinds)


def _set_apart(source: str, text: str, wanted: Sequence[re.Match[str]], kinds: Collection[str], spaced: bool) -> str:
    """Return a text with the placeholders of its source, each between spaces, and without any other sign that is part of one.

    Placeholders that are put where they are likely to stand may form others with the text around them; these cannot.
    """
    units = list[tuple[int, str]]()
    end = 0
    for one in wanted:
        if one.start() >= end:  # others are inside of the text of a role
            unit = _with_text(source, one)
            units.append((one.start(), unit))
            end = one.start() + len(unit)
    plain = _SIGNS.sub("", _without_marks(text, kinds))
    size = at = len(plain)
    for start, unit in reversed(units):
        at = min(at, round(start / len(source) * size))
        while spaced and at and not plain[at - 1].isspace():
            at -= 1
        head = plain[:at].rstrip()
        plain = f"{head} {unit} {plain[at:].lstrip()}"
        at = len(head)
    return plain.strip()


def _settled(source: str, text: str, wanted: Sequence[re.Match[str]], kinds: Collection[str], spaced: bool) -> str:
    names = Counter(one[0] for one in wanted)
    whole = {one.start(): _with_text(source, one) for one in wanted}
    roles = [_inside(whole[one.start()]) for one in wanted if one.lastgroup == "role"]
    parts = list[str]()
    position = 0
    for unit in _units(text, names, roles):
        parts += [_without_marks(text[position : unit.start()], kinds), unit[0]]
        position = unit.end()
    settled = _apart([*parts, _without_marks(text[position:], kinds)])
    missing = names - sum(map(_inside, parts[1::2]), Counter[str]())
    for one in sorted(
        wanted, key=lambda found: (found.lastgroup != "role", -found.start())
    ):  # roles first: their texts have others
        if missing[one[0]] > 0:
            missing -= _inside(whole[one.start()])
            spans = [unit.span() for unit in _units(settled, names, roles)]
            settled = _inserted(settled, whole[one.start()], one.start() / len(source), spans, spaced)
    return settled


def _with_text(source: str, one: re.Match[str]) -> str:
    """Return a placeholder of a source, a role with the text in backquotes that follows it."""
    quoted = _QUOTED.match(source, one.end()) if one.lastgroup == "role" else None
    return one[0] + (quoted[0] if quoted else "")


def _units(text: str, wanted: Mapping[str, int], texts: Sequence[Counter[str]]) -> list[re.Match[str]]:
    """Return the placeholders of a text, each at most as often as it is wanted, roles with their text and those in it, which have
    to be among those of one of `texts`."""
    roles = [name for name in wanted if _ROLE.fullmatch(name)]
    others = sorted(wanted.keys() - set(roles), key=len, reverse=True)
    patterns = ([rf"{re.escape(name)}`[^`\n]+`" for name in roles], [re.escape(name) for name in others])
    rest = Counter(wanted)
    units = list[re.Match[str]]()
    for names in patterns:
        for one in re.finditer("|".join(names), text) if names else ():
            inside = _inside(one[0])
            fits = inside <= rest and (names is patterns[1] or any(inside <= own for own in texts))
            if fits and not any(unit.start() < one.end() and one.start() < unit.end() for unit in units):
                rest -= inside
                units.append(one)
    return sorted(units, key=lambda unit: unit.start())


def _inside(unit: str) -> Counter[str]:
    """Return the placeholders of a unit: itself, or a role and those in its text."""
    return Counter(one[0] for one in PLACEHOLDER.finditer(unit)) or Counter([unit])


def _without_marks(text: str, kinds: Collection[str]) -> str:
    """Return a text in which placeholders of some kinds are words, or left out if they have none."""

    def word(one: re.Match[str]) -> str:
        if one.lastgroup not in kinds:
            return one[0]
        return one[0].rpartition(":")[2].strip("`") if one.lastgroup in ("code", "reference") else ""

    marked = not {"code", "reference", "role"}.isdisjoint(kinds)
    while (plain := PLACEHOLDER.sub(word, text)) != text or (marked and "`" in text):
        text = re.sub(" {2,}", " ", plain.replace("`", "") if marked else plain)
    return text


def _apart(parts: Sequence[str]) -> str:
    """Return the text of parts, of which every second one is a placeholder, with spaces where one would touch a word."""
    text = ""
    for number, part in enumerate(parts):
        end, begin = text[-1:], part[:1]
        joined = _joins(end) or (begin == ":" and end in ".+-") or (begin == "`" and end == ">")
        touches = bool(end and begin) and joined and _joins(begin) and (number % 2 == 1 or begin != ":")
        touches |= number % 2 == 0 and text.endswith(">`") and bool(begin.strip())  # code does not begin at a space
        text += (" " if touches else "") + part
    return text


def restored(text: str, values: Mapping[str, str], capital: bool = False) -> str:
    """Return an output with placeholders and terms in place of their masks. Masks that the source does not have are left out.

    With `capital`, a term at the beginning begins with a capital letter.
    """
    if "⟦" not in text:
        return text
    found = _SYMBOL.sub(lambda one: values.get(one[0], ""), text)
    return found[:1].upper() + found[1:] if capital and text.startswith("⟦term") else found
