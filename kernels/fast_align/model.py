"""A fitted aligner, which is stored in one file and aligns other text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from durable import write_whole

if TYPE_CHECKING:
    import fewstep_native
    from fewstep_native import F64, U32

Links = list[tuple[int, int]]
"""Pairs (source position, target position) from 0, sorted by the position of the explained side."""


@dataclass(frozen=True)
class AlignmentModel:
    """A fitted model: t(target | source), the prior, and all other values for aligning other text. Sides are those of the fit."""

    native: fewstep_native.AlignModel

    @property
    def tension(self) -> float:
        return self.native.tension

    @property
    def length_ratio(self) -> float:
        """Mean over the pairs of explained words per explaining word."""
        return self.native.length_ratio

    @property
    def reverse(self) -> bool:
        """True if the source was explained by the target."""
        return self.native.reverse

    @property
    def cells(self) -> int:
        """Number of word pairs that have a probability."""
        return self.native.cells

    def probability(self, explaining: str | None, explained: str) -> float:
        """Return t(explained | explaining), with None for the null word; 1e-9 for pairs that did not occur together in the fit."""
        return self.native.probability(explaining, explained)

    def row(self, explaining: int) -> tuple[U32, F64]:
        """Return, for a model of numbered words (pieces), the words that occurred with word `explaining` in the fit, and t of each.

        The null word is -1. The row of a word that did not occur is empty.
        """
        return self.native.row(explaining + 1)

    def align(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], *, threads: int = 1) -> list[Links]:
        """Return the best links of other pairs. A pair with an empty side gets no links."""
        text = bitext(pairs)
        found = self.native.align(text, threads)
        return [found.pairs(pair) for pair in range(text.pairs)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file atomically: little-endian, versioned, with checksums. Equal models give equal bytes. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.save(str(temporary)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AlignmentModel:
        """Read a saved model; a large one is mapped. Raises ValueError for another kind of file and for an altered one, OSError for
        one that cannot be read."""
        from fewstep.native import fewstep_native

        return cls(fewstep_native.AlignModel.load(os.fspath(path)))


def bitext(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> fewstep_native.Bitext:
    """Return pairs of word lists as the extension takes them. Raises TypeError if a side is a string rather than a list of
    words."""
    from fewstep.native import fewstep_native

    text = fewstep_native.Bitext()
    for number, (source, target) in enumerate(pairs):
        for side, words in (("source", source), ("target", target)):
            if isinstance(words, str):
                raise TypeError(f"fast_align: pair {number}: expected a list of words as {side}, got a string; split it first")
        try:
            text.add_words(source, target)
        except (TypeError, UnicodeEncodeError) as error:
            raise TypeError(
                f"fast_align: pair {number}: expected two lists of words that can be encoded as UTF-8, "
                f"got {source!r:.80} and {target!r:.80}"
            ) from error
    return text
