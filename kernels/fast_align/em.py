"""EM, one pass at a time. The sums of a pass are exact integers, so that they do not depend on how a text is split."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.fast_align.options import AlignOptions

if TYPE_CHECKING:
    from fewstep_native import AlignedLinks, Aligner, Halves

UNITS = 2**84
"""The integer that represents 1 in an exact sum."""

TENSION_STEPS = 8


@dataclass(frozen=True)
class Sums:
    """Exact sums over the pairs of a text, or of a shard of it."""

    log_likelihood: int = 0
    null_posterior: int = 0
    feature: int = 0

    @classmethod
    def of(cls, halves: Sequence[Halves]) -> Sums:
        return cls(*(high * 2**64 + low for high, low in halves))

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.log_likelihood + other.log_likelihood,
            self.null_posterior + other.null_posterior,
            self.feature + other.feature,
        )


@dataclass(frozen=True)
class Pass:
    """The statistics of one pass over the text."""

    log_likelihood: float
    """Natural logarithm of the probability of all target words, before the pass's M-step."""
    target_words: int
    null_posterior: float
    """Mean posterior of the null word; 0 in the last pass, which only looks for the best links."""
    feature: float
    """Mean posterior feature (minus the distance from the diagonal); 0 in the last pass."""
    tensions: tuple[float, ...] = ()
    """The tension before each step of its ascent and after the last; empty if it is not fitted."""
    model_features: tuple[float, ...] = ()
    """The mean feature under the prior at each step."""

    @property
    def cross_entropy(self) -> float:
        """Bits per target word."""
        return -self.log_likelihood / math.log(2) / self.target_words if self.target_words else 0.0

    @property
    def perplexity(self) -> float:
        return float(2.0**self.cross_entropy)


def passes(aligner: Aligner, options: AlignOptions) -> Iterator[Pass]:
    """Yield all passes but the last: E-step, tension, M-step."""
    for number in range(options.iterations - 1):
        summary = summarise(Sums.of(aligner.expect(options.threads)), aligner.target_words)
        if number and options.favor_diagonal and options.optimize_tension and aligner.target_words:
            summary = fit_tension(summary, aligner.tension, aligner.sizes(), options)
            aligner.tension = summary.tensions[-1]
        aligner.maximise(options.threads)
        yield summary


def last_pass(links: AlignedLinks, target_words: int) -> Pass:
    """Return the statistics of the pass that found `links`."""
    high, low = links.log_likelihood
    return summarise(Sums(high * 2**64 + low), target_words)


def summarise(sums: Sums, target_words: int) -> Pass:
    words = max(target_words, 1)
    return Pass(
        sums.log_likelihood / UNITS,
        target_words,
        sums.null_posterior / UNITS / words,
        sums.feature / UNITS / words,
    )


def fit_tension(summary: Pass, tension: float, sizes: Sequence[tuple[int, int, int]], options: AlignOptions) -> Pass:
    """Return the pass with the tension that follows from it. `sizes` are (target words, source words, pairs of that size)."""
    from fewstep.native import fewstep_native as native

    tensions = [tension]
    features = []
    for _ in range(TENSION_STEPS):
        features.append(native.model_feature(sizes, summary.target_words, tensions[-1], options.compatible, options.threads))
        tensions.append(native.step_tension(tensions[-1], summary.feature, features[-1]))
    return Pass(
        summary.log_likelihood,
        summary.target_words,
        summary.null_posterior,
        summary.feature,
        tuple(tensions),
        tuple(features),
    )
