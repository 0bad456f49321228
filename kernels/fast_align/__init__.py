"""Word alignment by fast_align (Dyer, Chahuneau and Smith 2013). On the command line: `python -m kernels.fast_align`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernels.fast_align.em import Pass, last_pass, passes
from kernels.fast_align.model import AlignmentModel, Links, bitext
from kernels.fast_align.options import AlignOptions

__all__ = ["AlignOptions", "Alignment", "AlignmentModel", "Pass", "fast_align"]


@dataclass(frozen=True)
class Alignment:
    """The result of `fast_align`."""

    links: list[Links]
    """By pair: (source position, target position), from 0. Each explained word has at most one link."""
    model: AlignmentModel
    passes: list[Pass]
    """The statistics of each iteration; the last one only computes links."""
    empty: int
    """Pairs with an empty side, which have no links and take no part in the fit."""
    too_long: int
    """Pairs with a side longer than `max_length`, which have no links and take no part in the fit."""
    near_ties: int
    """Words whose two best links differ by at most 1e-9 (logarithm), so that rounding could choose the other one."""


def fast_align(pairs: Iterable[tuple[Sequence[str], Sequence[str]]], *, options: AlignOptions | None = None) -> Alignment:
    """Fit word alignment on pairs of word lists, and align them.

    Links are those of upstream fast_align with one thread, for any number of threads. Raises TypeError for sides that are not lists
    of words.
    """
    from fewstep.native import fewstep_native

    options = options or AlignOptions()
    text = bitext(pairs)
    aligner = fewstep_native.Aligner(
        text, options.reverse, options.native(), options.tension, keep_columns=True, threads=options.threads
    )
    reports = list(passes(aligner, options))
    found = aligner.align(margins=False, threads=options.threads)
    return Alignment(
        links=[found.pairs(pair) for pair in range(text.pairs)],
        model=AlignmentModel(aligner.model()),
        passes=[*reports, last_pass(found, aligner.target_words)],
        empty=aligner.empty,
        too_long=aligner.long,
        near_ties=found.near_ties,
    )
