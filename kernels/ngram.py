"""Estimate n-gram language models from text and write them to files (`fewstep.ngram` scores with them)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import fewstep.ngram
from fewstep.native import fewstep_native
from fewstep.ngram import text_of
from kernels.durable import write_whole

if TYPE_CHECKING:
    from fewstep_native import NgramModel as NativeModel

__all__ = ["Estimation", "NgramModel"]


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
        Raises MemoryError if that exceeds `memory_gib`, ValueError for options or a text that allow no estimate.
        """
        source = str(sentences) if isinstance(sentences, os.PathLike) else text_of(sentences)
        thresholds = [*prune][: max(order, 1)]
        if not thresholds or any(value < 0 for value in thresholds):
            raise ValueError(f"prune: expected counts of at least 0, got {list(prune)}")
        thresholds += [thresholds[-1]] * (order - len(thresholds))
        native, facts = fewstep_native.NgramModel.estimate(
            source,
            order=order,
            prune=thresholds,
            discount_fallback=discount_fallback,
            interpolate_unigrams=interpolate_unigrams,
            skip_special=skip_special,
            threads=threads,
            memory=int(memory_gib * 2**30),
        )
        tuples: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
        return cls(native, Estimation(**tuples))

    def save(self, path: Path | str) -> None:
        """Write the file that `load` maps, atomically. Equal models give equal bytes. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write(str(temporary)))

    def write_arpa(self, path: Path | str) -> None:
        """Write an ARPA file, atomically; loading it gives the same model. Raises OSError."""
        write_whole(Path(path), lambda temporary: self.native.write_arpa(str(temporary)))
