"""Beam search in steps of several tokens: all bookkeeping of a batch of sentences whose network runs elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from fewstep_native import F32, I64

    from kernels.ngram import NgramScorer

__all__ = ["Advance", "Beam", "BeamOptions", "Neighbours", "Outcome"]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """How much likelier neighbours that are written in one step are side by side than by themselves.

    Slots d, d + h, d + 2h, ... of a step are one direction's, neighbours in the output. Two of them are linked by

        weight (log p(right | left) - log p(right))

    in nats, by an n-gram model: independently chosen, neighbours repeat or contradict each other.
    """

    ngram: NgramScorer | None = None
    """A model over the network's words. None: there are no links."""
    weight: float = 0.0
    leftward: tuple[bool, ...] = (False,)
    """By direction (h of them): do its tokens come in the output before those that it wrote earlier?"""

    def native(self) -> dict[str, Any]:
        """Arguments of the native functions."""
        native = None if self.ngram is None else self.ngram.native
        return {"ngram": native, "ngram_weight": self.weight, "right_to_left": self.leftward}


STRANGERS = Neighbours()


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """How a step is ranked and written, and what ends an output."""

    beam_size: int
    """Hypotheses kept alive per sentence (K)."""
    step_size: int = 1
    """Tokens of a step (z)."""
    per_direction: bool = False
    """EOS in either of two slots ends the output, both slots count, and the token beside EOS is kept; else the first EOS ends it
    and what stands after it costs nothing."""
    selection: Literal["exact", "outer", "double-top-k"] = "exact"
    """How joint continuations are ranked (`kernels/csrc/inference/stepwise/step_selection.h`): exactly, or as Zhang et al. 2020 or
    Imamura & Sumita 2020 do."""
    n_best: int = 1
    """Hypotheses returned per sentence, at most `beam_size`."""
    length_penalty: float = 1.0
    """alpha: a hypothesis scores log p / tokens^alpha; tokens count one EOS."""
    gnmt: bool = False
    """log p / ((5 + tokens) / 6)^alpha instead (Wu et al. 2016)."""
    prune: float = math.inf
    """Hypotheses whose log-probability is more than so many nats below the highest of their sentence, finished or not, do not live
    on (Freitag and Al-Onaizan 2017, relative threshold pruning): fewer than `n_best` may be found."""
    eos: int = 2
    pad: int = 0
    """Stands in steps where nothing is written."""
    neighbours: Neighbours = STRANGERS
    """Their links count in scores, as the tokens do; what is found then need not be the very best. With links `selection` is exact,
    and the first EOS ends an output."""

    @property
    def words(self) -> int:
        """Words of each slot that are needed for the ranking (W)."""
        if self.step_size == 1 or self.selection == "exact":
            return self.beam_size + (2 if self.per_direction else 1)
        return 3 * self.beam_size if self.selection == "double-top-k" else self.beam_size

    @property
    def eos_apart(self) -> bool:
        """EOS is told apart from the words; else it is one of them."""
        return (self.step_size == 1 or self.selection == "exact") and not self.per_direction


class Advance(NamedTuple):
    """What to feed to the network next."""

    going: I64
    """[G] sentences that go on, as places among those of this step"""
    counts: I64
    """[G] their live hypotheses, at most K: the rows of the next step, sentence after sentence, R of all"""
    rows: I64
    """[R] the row of this step that each of them continues"""
    tokens: I64
    """[R,z] what it appended"""


class Outcome(NamedTuple):
    """What was found for a sentence."""

    hypotheses: list[tuple[float, list[int]]]
    """(score, tokens in writing order without EOS) of the n best, best first, distinct"""
    steps: int
    """Steps until the sentence was done."""
    margin: float
    """Smallest gap, in nats, between what was kept and what was dropped."""


class Beam:
    """A search under way. A step ranks the continuations of a sentence's live hypotheses. Those among the first K that end are
    finished, the first K others live on, unless they are pruned. A sentence is done when K are finished, or when no live hypothesis
    can still come before the worst of its n best finished ones, or at its longest length, where what is among the first K counts as
    finished."""

    def __init__(self, limits: Sequence[int], options: BeamOptions) -> None:
        """`limits`: the longest output of each sentence in tokens with EOS, at least 1. Raises ValueError."""
        from kernels.native import fewstep_native

        self._options = options
        self._native = fewstep_native.make_beam(
            list(limits),
            beams=options.beam_size,
            step_size=options.step_size,
            per_direction=options.per_direction,
            selection="exact" if options.step_size == 1 else options.selection,
            eos=options.eos,
            pad=options.pad,
            n_best=options.n_best,
            alpha=options.length_penalty,
            gnmt=options.gnmt,
            beam_threshold=options.prune,
            **options.neighbours.native(),
        )

    def advance(self, scores: F32, ids: I64, eos: F32) -> Advance:
        """One step of the sentences that are searched still: for each slot of their live hypotheses (R rows; one a sentence in the
        first step, then as the step before said) the best `options.words` words.

        `scores` [R,z,W] float32 are log-probabilities, best first (minus infinity: none), `ids` [R,z,W] int64 the words,
        `eos` [R,z] float32 the log-probabilities of EOS (read if `options.eos_apart`). Raises ValueError for other shapes.
        """
        going, counts, rows, tokens = self._native.advance(scores, ids, eos)
        return Advance(going, counts, rows, tokens.reshape(-1, self._options.step_size))

    def outcomes(self) -> list[Outcome]:
        """What was found for each sentence, once none goes on."""
        return [Outcome(*outcome) for outcome in self._native.outcomes()]
