"""Choices of the embedded corpus: a pure function of the part, the number of the pair and the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Random choices, seeded by a name."""

    def __init__(self, name: str) -> None:
        # Python keeps `random()` of an integer seed equal across versions; its other methods it may change.
        self._random = Random(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")).random

    def chance(self, percent: int) -> bool:
        return self._random() * 100 < percent

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random() * len(choices))]

    def variant(self, choices: Sequence[T]) -> T:
        """One of several translations; in two thirds of the cases the first."""
        if len(choices) == 1 or self._random() * 3 < 2:
            return choices[0]
        return choices[1 + int(self._random() * (len(choices) - 1))]
