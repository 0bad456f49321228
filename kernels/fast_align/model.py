"""A fitted aligner: kept in one file, and used on other text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.durable import write_whole

if TYPE_CHECKING:
    import fewstep_native
    from fewstep_native import F64, U32

Links = list[tuple[int, int]]
"""(source position, target position), from 0, by the position of the explained side."""


@dataclass(frozen=True)
class AlignmentModel:
    """t(target | source), the prior, and all that aligning other text takes. Sides are as the fit explained them."""

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
        """Was the source explained by the target?"""
        return self.native.reverse

    @property
    def cells(self) -> int:
        """Pairs of words that have a probability."""
        return self.native.cells

    def probability(self, explaining: str | None, explained: str) -> float:
        """t(explained | explaining), the null word for None; 1e-9 for what the fit never saw together."""
        return self.native.probability(explaining, explained)

    def row(self, explaining: int) -> tuple[U32, F64]:
        """Of a model of numbered words (pieces): the words that the fit saw with word `explaining`, and t of each.

        The null word is -1. A word that the fit never saw has none.
        """
        return self.native.row(explaining + 1)

    def align(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]], *, threads: int = 1) -> list[Links]:
        """Best links of other pairs. A pair with an empty side gets none."""
        text = bitext(pairs)
        found = self.native.align(text, threads)
        return [found.pairs(pair) for pair in range(text.pairs)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, whole or not at all: little-endian, versioned, to be mapped. Equal models give equal bytes."""
        write_whole(Path(path), lambda temporary: self.native.save(str(temporary)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AlignmentModel:
        """Map a saved model. Raises RuntimeError for a file that is none."""
        from fewstep.native import fewstep_native

        return cls(fewstep_native.AlignModel.load(os.fspath(path)))


def bitext(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> fewstep_native.Bitext:
    """Pairs of word lists as the extension takes them. Raises TypeError where a side is a string rather than a list of words."""
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
