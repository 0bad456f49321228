"""Random choices of the embedded corpus, a pure function of the part, the number of the pair and the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A generator of random choices that is seeded by a name."""

    def __init__(self, name: str) -> None:
        # Python guarantees equal values across versions only for `random()` of an integer seed.
        self._random = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")).random

    def chance(self, percent: int) -> bool:
        """Return True with the given probability in per cent."""
        return self._random() * 100 < percent

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices; all are equally likely."""
        return choices[int(self._random() * len(choices))]

    def variant(self, choices: Sequence[T]) -> T:
        """Return one of several translations: the first with probability 2/3."""
        if len(choices) == 1 or self._random() * 3 < 2:
            return choices[0]
        return choices[1 + int(self._random() * (len(choices) - 1))]
