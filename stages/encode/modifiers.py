"""Modifiers of training pairs, which make systems robust: other case, no punctuation at the end, typing errors, placeholders.

The names are those of OpusTrainer (https://github.com/hplt-project/OpusTrainer). Each pair is modified by at most one of them. What
happens to a pair depends on its text and its number alone, so that workers and attempts agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Annotated

from fewstep.config.bounds import Ge, Le

Share = Annotated[float, Ge(0), Le(1)]
END = ".!?…。！？؟।:;,"
KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
INSERTED = ("%s", "%d", "{0}", "{name}", "%(count)d", "<b>", "</b>", "<br/>", "https://example.org/a", "`code`", "&nbsp;")
"""Placeholders that are put in front of both sides, or behind them."""


@dataclass(frozen=True, kw_only=True)
class Modifiers:
    """Shares of the training pairs, from 0 to 1, that are modified. Their sum is at most 1; the rest stays as it is."""

    upper_case: Share = 0.0
    """Both sides in capitals."""
    title_case: Share = 0.0
    """Both sides with capitals at the beginning of each word."""
    remove_end_punctuation: Share = 0.0
    """Both sides without the punctuation at their end, if both have some."""
    typos: Share = 0.0
    """The source with typing errors: in one of ten words, letters are exchanged, left out, doubled, or replaced by a neighbour on
    the keyboard."""
    placeholders: Share = 0.0
    """A placeholder, such as `%s`, `{0}`, a tag or a URL, in front of both sides or behind them."""

    @property
    def total(self) -> float:
        """The share of all modified pairs."""
        return sum(float(getattr(self, field.name)) for field in fields(self))


def modified(modifiers: Modifiers, number: int, source: str, target: str) -> tuple[str, str]:
    """Return a pair, modified or not. `number` is that of the pair in its text."""
    seed = blake2b(f"{number}\n{source}\n{target}".encode(), digest_size=8).digest()
    draw = random.Random(int.from_bytes(seed, "little"))
    left = draw.random()
    for field in fields(modifiers):
        left -= getattr(modifiers, field.name)
        if left < 0:
            return _MODIFIERS[field.name](draw, source, target)
    return source, target


def _upper_case(draw: random.Random, source: str, target: str) -> tuple[str, str]:
    return source.upper(), target.upper()


def _title_case(draw: random.Random, source: str, target: str) -> tuple[str, str]:
    return _titled(source), _titled(target)


def _titled(text: str) -> str:
    """Return a text in title case; unlike `str.title`, letters behind an apostrophe stay."""
    return " ".join(word[:1].title() + word[1:] for word in text.split(" "))


def _remove_end_punctuation(draw: random.Random, source: str, target: str) -> tuple[str, str]:
    bare = source.rstrip(END), target.rstrip(END)
    return bare if all(bare) and bare[0] != source and bare[1] != target else (source, target)


def _typos(draw: random.Random, source: str, target: str) -> tuple[str, str]:
    words = source.split(" ")
    long = [index for index, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    for index in draw.sample(long, -(-len(long) // 10)):
        words[index] = _mistyped(draw, words[index])
    return " ".join(words), target


def _mistyped(draw: random.Random, word: str) -> str:
    at = draw.randrange(1, len(word) - 1)
    before, letter, following, rest = word[:at], word[at], word[at + 1], word[at + 2 :]
    kind = draw.randrange(4)
    if kind == 0:
        return before + following + letter + rest
    if kind == 1:
        return before + following + rest
    if kind == 2:
        return before + letter + letter + following + rest
    return before + _neighbour(draw, letter) + following + rest


def _neighbour(draw: random.Random, letter: str) -> str:
    row = next((row for row in KEYBOARD if letter.lower() in row), None)
    if row is None:
        return letter * 2
    at = row.index(letter.lower())
    chosen = draw.choice([row[other] for other in (at - 1, at + 1) if 0 <= other < len(row)])
    return chosen.upper() if letter.isupper() else chosen


def _placeholders(draw: random.Random, source: str, target: str) -> tuple[str, str]:
    inserted = draw.choice(INSERTED)
    if draw.random() < 0.5:
        return f"{inserted} {source}", f"{inserted} {target}"
    return f"{source} {inserted}", f"{target} {inserted}"


_MODIFIERS: dict[str, Callable[[random.Random, str, str], tuple[str, str]]] = {
    "upper_case": _upper_case,
    "title_case": _title_case,
    "remove_end_punctuation": _remove_end_punctuation,
    "typos": _typos,
    "placeholders": _placeholders,
}
