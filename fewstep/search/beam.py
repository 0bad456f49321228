"""Beam search in steps of several tokens: the bookkeeping for a batch of sentences whose network runs elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fewstep.native import fewstep_native
from fewstep.search.coupling import NO_COUPLING, BigramCoupling

if TYPE_CHECKING:
    from fewstep_native import F32, I64


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The ranking of steps and the end of outputs."""

    beam_size: int
    """Hypotheses kept alive per sentence (K)."""
    step_size: int = 1
    """Tokens per step (z)."""
    per_direction: bool = False
    """If True, EOS in either of two slots ends the output, both slots are scored, and the token next to EOS is kept. Otherwise the
    first EOS ends the output and the slots after it are not scored."""
    selection: Literal["exact", "outer", "outer-authors", "double-top-k"] = "exact"
    """The ranking of joint continuations (`csrc/inference/stepwise/step_selection.h`) and the end of the search: exact, algorithm 1
    of Zhang et al. 2020 ("outer"), the program of its authors ("outer-authors"), or the approximation of Imamura & Sumita 2020
    ("double-top-k"). With one token a step all are the same."""
    n_best: int = 1
    """Hypotheses returned per sentence, at most `beam_size`."""
    length_penalty: float = 1.0
    """The exponent alpha: the score of a hypothesis is log p / tokens^alpha, where the number of tokens includes one EOS. The
    selections "outer" and "outer-authors" count every slot of every step."""
    gnmt: bool = False
    """Use log p / ((5 + tokens) / 6)^alpha instead (Wu et al. 2016)."""
    beam_threshold: float = math.inf
    """Drop live hypotheses whose log-probability is more than this many nats below the highest one of their sentence, finished or
    not (relative threshold pruning, Freitag and Al-Onaizan 2017). Fewer than `n_best` hypotheses may be found."""
    eos: int = 2
    pad: int = 0
    """The id that fills slots of a step without a token."""
    coupling: BigramCoupling = NO_COUPLING
    """The coupling scores that are added to the scores of steps. The search is then not exact. Coupling requires `selection`
    "exact" and `per_direction` False."""

    @property
    def whole_steps(self) -> bool:
        """True if every slot of a step counts: in scores, in the length, and at the limit, which is rounded up to whole steps."""
        return self.step_size > 1 and self.selection in ("outer", "outer-authors")

    @property
    def num_kept(self) -> int:
        """Continuations of a sentence in a step that may be finished: the first K; with "outer" K of each hypothesis, with
        "outer-authors" the first 2 K."""
        if not self.whole_steps:
            return self.beam_size
        return 2 * self.beam_size if self.selection == "outer-authors" else self.beam_size**2

    @property
    def num_candidates(self) -> int:
        """Tokens of each slot that the ranking needs (W)."""
        if self.step_size == 1 or self.selection == "exact":
            return self.beam_size + (2 if self.per_direction else 1)
        return 3 * self.beam_size if self.selection == "double-top-k" else self.beam_size

    @property
    def separate_eos(self) -> bool:
        """True if EOS is passed separately and must not be among the candidates of a slot."""
        return (self.step_size == 1 or self.selection == "exact") and not self.per_direction


class Advance(NamedTuple):
    """The input of the network's next step."""

    going: I64
    """[G] the sentences that continue, as positions among the sentences of this step."""
    counts: I64
    """[G] their numbers of live hypotheses, at most K; these hypotheses are the R rows of the next step, grouped by sentence."""
    rows: I64
    """[R] the row of this step that each new row continues."""
    tokens: I64
    """[R,z] the tokens that each new row appended."""


class Outcome(NamedTuple):
    """The result of a search for one sentence."""

    hypotheses: list[tuple[float, list[int]]]
    """The distinct hypotheses, best first, as pairs (score, tokens in writing order without EOS)."""
    steps: int
    """Number of steps until the sentence was done."""
    margin: float
    """The smallest gap, in nats, between a hypothesis that was kept and one that was dropped. Unless `selection` is exact, tokens
    beyond the first of each slot (`BeamOptions.num_candidates`) are not compared: a near-tie among them does not show."""


class Beam:
    """A beam search in progress.

    A step ranks the continuations of a sentence's live hypotheses. Those among the first K that end are finished; the first K
    others stay alive unless `beam_threshold` drops them. A sentence is done when K hypotheses are finished, when no live hypothesis
    can still outrank the worst of its n best finished ones, or at its maximum length, where the first K count as finished.

    With `selection` "outer" all of `BeamOptions.num_kept` that end are finished, and a sentence is done when K or more are, or at
    its maximum length; with "outer-authors" when the worst of the K best finished ones scores above the best live log-probability
    divided by the penalty of the maximum length. Both take a live hypothesis as finished only if no other is. The authors' program
    stops a batch, not a sentence, and forbids EOS in the first step (`SlotRules.min_tokens`).
    """

    def __init__(self, limits: Sequence[int], options: BeamOptions) -> None:
        """Start a search. `limits` are the maximum output lengths of the sentences in tokens with EOS, at least 1.

        Raises ValueError for invalid limits or options.
        """
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
            beam_threshold=options.beam_threshold,
            **options.coupling.native(),
        )

    def advance(self, scores: F32, ids: I64, eos: F32) -> Advance:
        """Advance all unfinished sentences by one step.

        The R rows are the live hypotheses (one per sentence in the first step, then those of the previous `Advance`). For each slot
        of a row, `scores` [R,z,W] float32 are the log-probabilities of the `options.num_candidates` best tokens, best first (minus
        infinity: no token), `ids` [R,z,W] int64 are these tokens, and `eos` [R,z] float32 is the log-probability of EOS (read if
        `options.separate_eos`). Raises ValueError for other shapes.
        """
        going, counts, rows, tokens = self._native.advance(scores, ids, eos)
        return Advance(going, counts, rows, tokens.reshape(-1, self._options.step_size))

    def outcomes(self) -> list[Outcome]:
        """Return the result of each sentence, once no sentence continues."""
        return [Outcome(*outcome) for outcome in self._native.outcomes()]
