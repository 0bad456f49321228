"""Masks: tokens of the vocabulary that stand for placeholders of a text, on both sides of a pair.

`Open %s with `x`.` is `Open ⟦directive1⟧ with ⟦code1⟧.` for a network, which copies two tokens in place of two strings that it may
never have seen. A mask has a kind and a number; different placeholders of a kind are numbered in the order of the source, so that a
translation in another order is restored by the numbers. A vocabulary with masks has pieces of their names, which also state the
kinds that are masked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from fewstep.text.placeholders import PLACEHOLDER

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

__all__ = ["KINDS", "Kind", "Masked", "kinds_of", "mask", "mask_pair", "restored", "symbols"]

Kind = Literal["code", "url", "tag", "role", "directive", "entity", "number"]
"""Kinds of placeholders (`fewstep.text.placeholders`), and numbers in digits."""
KINDS: tuple[Kind, ...] = get_args(Kind)
COUNT = 8
"""Different placeholders of a kind in a text that have masks; further ones stay."""
_SYMBOL = re.compile(rf"⟦(?:{'|'.join(KINDS)})[1-{COUNT}]⟧")
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


def _found(text: str, kinds: Collection[str]) -> Iterator[re.Match[str]]:
    """Yield the placeholders of some kinds. Others are not looked into."""
    return (one for one in _pattern("number" in kinds).finditer(text) if one.lastgroup in kinds)


def mask(text: str, kinds: Collection[str], only: Collection[str] | None = None, beside: str = "") -> Masked:
    """Return a text whose placeholders of some kinds have masks; of these only those in `only`, if it is given.

    Names of masks that stand in the text, or in the one beside it, stand for themselves.
    """
    if not kinds:
        return Masked(text, {})
    values = {literal: literal for literal in _SYMBOL.findall(text + beside)}
    chosen = dict[str, str]()
    parts = list[str]()
    position = 0
    for one in _found(text, kinds):
        kind = str(one.lastgroup)
        placeholder = one[0]
        if only is not None and placeholder not in only:
            continue
        if placeholder not in chosen:
            free = (one for one in symbols([kind]) if one not in values)
            name = next(free, "")
            if not name:
                continue
            chosen[placeholder], values[name] = name, placeholder
        parts += [text[position : one.start()], chosen[placeholder]]
        position = one.end()
    return Masked("".join([*parts, text[position:]]), values)


def mask_pair(source: str, target: str, kinds: Collection[str]) -> tuple[Masked, str]:
    """Return both sides of a pair with masks for the placeholders that occur in both, equally often.

    Others stay, so that each mask of a source has its place in the target.
    """
    if not kinds:
        return Masked(source, {}), target
    counts = [Counter(one[0] for one in _found(side, kinds)) for side in (source, target)]
    masked = mask(source, kinds, [text for text, count in counts[0].items() if counts[1][text] == count], target)
    names = {placeholder: name for name, placeholder in masked.values.items()}
    parts = list[str]()
    position = 0
    for one in _found(target, kinds):
        if one[0] in names:
            parts += [target[position : one.start()], names[one[0]]]
            position = one.end()
    return masked, "".join([*parts, target[position:]])


def restored(text: str, values: Mapping[str, str]) -> str:
    """Return an output with placeholders in place of their masks. Masks that the source does not have are left out."""
    return _SYMBOL.sub(lambda one: values.get(one[0], ""), text) if "⟦" in text else text
