"""Estimate n-gram language models from text and write them to files (`fewstep.ngram` scores with them).

A text beyond memory is counted in parts: `text_words` of each, in order, give the words of the whole text; `count_ngrams` counts a
part into a file; `NgramModel.from_counts` merges these into the model that `NgramModel.estimate` makes of the whole text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import fewstep.ngram
from durable import write_whole
from fewstep.native import fewstep_native
from fewstep.ngram import text_of
from fewstep.text.format import check_text_file

if TYPE_CHECKING:
    from fewstep_native import NgramCounts
    from fewstep_native import NgramModel as NativeModel


@dataclass(frozen=True)
class Estimation:
    """Statistics of an estimation."""

    discounts: tuple[tuple[float, float, float], ...]
    """By order: the discounts of adjusted counts of 1, 2 and 3 or more."""
    fallback: tuple[bool, ...]
    """By order: True if the discounts are `discount_fallback`."""
    distinct: tuple[int, ...]
    """By order: distinct n-grams of the text, including those that are pruned."""
    sentences: int
    tokens: int
    """Words of the text, without `<s>` and `</s>`."""
    skipped: int
    """Special words in the text that were treated as white space."""


@dataclass(frozen=True)
class CountedText:
    """A part of a text whose n-grams are counted."""

    order: int
    """Length of the longest n-grams."""
    sentences: int
    tokens: int
    """Words, without `<s>` and `</s>`."""
    skipped: int
    """Special words that were treated as white space."""


def text_words(text: bytes, *, skip_special: bool = False, threads: int = 1) -> bytes:
    """Return the words of a text, one on each line, in order of first appearance.

    Raises ValueError for special words unless `skip_special`.
    """
    return fewstep_native.ngram_words(text, skip_special=skip_special, threads=threads)


def count_ngrams(
    text: bytes,
    words: bytes | Path,
    path: Path | str,
    *,
    order: int = 5,
    skip_special: bool = False,
    threads: int = 1,
) -> CountedText:
    """Count the n-grams of a part of a text into the file `path`; the bytes do not depend on `threads`.

    `words` are those of the whole text, as `text_words` gives them, or a file with them. Memory: 12 bytes for each word of the part
    and 4 (order + 1) for each distinct n-gram of the highest order, in addition to both texts. Raises ValueError for words that are
    not those of the text, MemoryError for a part of 2^32 words, OSError for a file that cannot be written.
    """
    source = words if isinstance(words, bytes) else str(words)
    counted = fewstep_native.count_ngrams(text, source, str(path), order=order, skip_special=skip_special, threads=threads)
    return CountedText(**counted)


def read_counts(path: Path | str) -> CountedText:
    """Check and return a file of counts. Raises ValueError for one that is truncated, altered or of another kind, and OSError."""
    return CountedText(**fewstep_native.read_ngram_counts(str(path)))


def open_counts(paths: Sequence[Path | str], words: bytes | Path) -> NgramCounts:
    """Return the counts of all parts of a text, which are checked in full and read when they are merged.

    Raises ValueError for damaged files and for counts of other words or of several orders, MemoryError for a text of 2^32 words,
    OSError.
    """
    return fewstep_native.NgramCounts.open([str(path) for path in paths], words if isinstance(words, bytes) else str(words))


class NgramModel(fewstep.ngram.NgramModel):
    """An n-gram language model with back-off, created by `estimate` or `load`."""

    def __init__(self, native: NativeModel, estimation: Estimation | None = None) -> None:
        super().__init__(native)
        self.estimation = estimation
        """Statistics of its estimation, or None if it was loaded."""

    @classmethod
    def estimate(
        cls,
        sentences: Iterable[Sequence[str]] | Path,
        order: int = 5,
        *,
        prune: Sequence[int] = (0,),
        discount_fallback: tuple[float, float, float] | None = None,
        interpolate_unigrams: bool = True,
        skip_special: bool = False,
        threads: int = 1,
        memory_gib: float = 8.0,
    ) -> Self:
        """Estimate interpolated modified Kneser-Ney of order 1 to 6, as KenLM's lmplz does (Heafield et al. 2013).

        `sentences` are lists of words, or a text file with one sentence per line and words separated by spaces, tabs, carriage
        returns or zero bytes. `prune[n - 1]` removes n-grams that occur at most this often; the last value holds for all higher
        orders. `discount_fallback`, usually (0.5, 1, 1.5), are the discounts of orders whose counts do not determine them; without
        it such orders are an error. `interpolate_unigrams=False` gives `<unk>` the whole interpolation weight of its order.
        `skip_special` treats `<s>`, `</s>` and `<unk>` in the text as white space. The model does not depend on `threads`.

        The estimation runs in memory: at most 12 bytes for each word and 64 for each distinct n-gram in addition to the text.
        Raises MemoryError if that exceeds `memory_gib`, ValueError for options or a text that allow no estimate, and for a
        file that is compressed or in UTF-16.
        """
        if isinstance(sentences, os.PathLike):
            check_text_file(Path(sentences))
        source = str(sentences) if isinstance(sentences, os.PathLike) else text_of(sentences)
        native, facts = fewstep_native.NgramModel.estimate(
            source,
            order=order,
            prune=_thresholds(prune, order),
            discount_fallback=discount_fallback,
            interpolate_unigrams=interpolate_unigrams,
            skip_special=skip_special,
            threads=threads,
            memory=int(memory_gib * 2**30),
        )
        return cls(native, _estimation(facts))

    @classmethod
    def from_counts(
        cls,
        counts: NgramCounts,
        order: int,
        *,
        prune: Sequence[int] = (0,),
        discount_fallback: tuple[float, float, float] | None = None,
        interpolate_unigrams: bool = True,
        threads: int = 1,
        memory_gib: float = 8.0,
    ) -> Self:
        """Return the model that `estimate` makes of the text whose parts were counted, with equal bytes.

        `order` is that of the counts.

        Memory: at most 64 bytes for each distinct n-gram, and 4 KiB (order + 1) for each part and thread. Raises MemoryError if the
        n-grams exceed `memory_gib`, ValueError as `estimate` does, RuntimeError for counts that are not those of a whole text,
        OSError.
        """
        native, facts = fewstep_native.NgramModel.estimate_counts(
            counts,
            prune=_thresholds(prune, order),
            discount_fallback=discount_fallback,
            interpolate_unigrams=interpolate_unigrams,
            threads=threads,
            memory=int(memory_gib * 2**30),
        )
        return cls(native, _estimation(facts))

    def save(self, path: Path | str) -> None:
        """Write the file that `load` maps, atomically. Equal models give equal bytes. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write(str(temporary)))

    def write_arpa(self, path: Path | str) -> None:
        """Write an ARPA file, atomically; loading it gives the same model. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write_arpa(str(temporary)))


def _thresholds(prune: Sequence[int], order: int) -> list[int]:
    """Return a threshold for each order."""
    thresholds = [*prune][: max(order, 1)]
    if not thresholds or any(value < 0 for value in thresholds):
        raise ValueError(f"prune: expected counts of at least 0, got {list(prune)}")
    return thresholds + [thresholds[-1]] * (order - len(thresholds))


def _estimation(facts: dict[str, Any]) -> Estimation:
    tuples: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    return Estimation(**tuples)
