"""Prefix beam search over the slots of a CTC network (Graves 2012, section 7.5; with a language model Hannun et al. 2014).

A slot writes a token or a blank; a text is written by all sequences of slots that become it when equal neighbours are merged and
then blanks are removed. Letters: B sentences, T slots, C candidates. Logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fewstep.search.dag_beam import checked_array
from fewstep.vocabulary import EOS

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer

__all__ = ["CtcBeamOptions", "CtcHypothesis", "ctc_beam"]

Prefix = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CtcBeamOptions:
    """Options of `ctc_beam`."""

    beam_size: int = 20
    """Prefixes kept at each slot, ranked by log P(Y) + gamma log P_ngram(Y) + beta |Y|; ties by the lower ids."""
    ngram_weight: float = 0.0
    """The weight gamma of the n-gram model, if one is given."""
    token_bonus: float = 0.0
    """The bonus beta for each token."""
    length_penalty: float = 0.0
    """The exponent alpha: the final score is divided by (|Y| + 1)^alpha."""
    n_best: int = 1
    """Outputs returned per sentence."""


class CtcHypothesis(NamedTuple):
    """One output of a sentence."""

    ids: list[int]
    score: float
    """(log P(Y) + gamma log P_ngram(Y </s>) + beta |Y|) / (|Y| + 1)^alpha, where P(Y) sums the alignments that the beam kept."""


def ctc_beam(
    scores: Any, token_ids: Any, blanks: Any, lengths: Any, *, options: CtcBeamOptions, ngram: NgramScorer | None = None
) -> list[list[CtcHypothesis]]:
    """Return the n best outputs of each sentence, best first: at least one, and distinct.

    `scores` float32 and `token_ids` int64 [B,T,C] are the log-probabilities and ids of the tokens that each slot may write, the
    blank not among them; a score of minus infinity stands for no token. `blanks` float32 [B,T] are the log-probabilities of the
    blank, whatever its rank, and `lengths` int64 [B] the numbers of slots; cells beyond them are not read. `ngram` is a model over
    the same ids, which also scores `</s>`. With all tokens and a beam without limit P(Y) is exact. A sentence without slots, or
    where no text has a probability above 0, has one empty output.

    Raises TypeError and ValueError for arrays of other types and shapes.
    """
    arrays = (
        checked_array("scores", scores, "float32", "[B,T,C]"),
        checked_array("token_ids", token_ids, "int64", "[B,T,C]"),
        checked_array("blanks", blanks, "float32", "[B,T]"),
    )
    sizes = checked_array("lengths", lengths, "int64", "[B]")
    if not arrays[0].shape == arrays[1].shape or arrays[0].shape[:2] != arrays[2].shape or len(sizes) != len(arrays[2]):
        raise ValueError("ctc_beam: expected scores and token_ids [B,T,C], blanks [B,T] and lengths [B] of the same sizes")
    if len(sizes) and not 0 <= sizes.min() <= sizes.max() <= arrays[2].shape[1]:
        raise ValueError(f"lengths: expected 0 to {arrays[2].shape[1]} slots, got {sizes.min()} to {sizes.max()}")
    model = _Model(ngram if options.ngram_weight else None, options)
    rows = zip(*(array.tolist() for array in arrays), sizes.tolist(), strict=True)
    return [_search(score[:size], ids[:size], blank[:size], model) for score, ids, blank, size in rows]


class _Entry(NamedTuple):
    """The log-probabilities of the alignments of a prefix that end in a blank, and in its last token."""

    blank: float
    token: float

    @property
    def total(self) -> float:
        return _add(self.blank, self.token)


class _Model:
    """The part of a score that depends on the text alone, computed once for each prefix."""

    def __init__(self, ngram: NgramScorer | None, options: CtcBeamOptions) -> None:
        self.ngram, self.options = ngram, options
        self._known: dict[Prefix, tuple[float, int]] = {(): (0.0, ngram.begin if ngram else 0)}

    def score(self, prefix: Prefix) -> float:
        """Return gamma log P_ngram(prefix) + beta |prefix|."""
        return self.options.ngram_weight * self._state(prefix)[0] + self.options.token_bonus * len(prefix)

    def final(self, prefix: Prefix, log_prob: float) -> float:
        """Return the score of a complete output."""
        whole = log_prob + self.score(prefix)
        if self.ngram is not None:
            whole += self.options.ngram_weight * self.ngram.step(self._state(prefix)[1], EOS)[0]
        return float(whole / (len(prefix) + 1) ** self.options.length_penalty)

    def _state(self, prefix: Prefix) -> tuple[float, int]:
        """Return log P_ngram(prefix) and the model's state after it. All shorter prefixes of a beam are known."""
        if self.ngram is None:
            return 0.0, 0
        if prefix not in self._known:
            before, state = self._known[prefix[:-1]]
            log_prob, state = self.ngram.step(state, prefix[-1])
            self._known[prefix] = before + log_prob, state
        return self._known[prefix]


def _search(
    scores: Sequence[Sequence[float]], token_ids: Sequence[Sequence[int]], blanks: Sequence[float], model: _Model
) -> list[CtcHypothesis]:
    beam: dict[Prefix, _Entry] = {(): _Entry(0.0, -math.inf)}
    for slot in zip(scores, token_ids, blanks, strict=True):
        grown = _extend(beam, *slot)
        ranked = sorted(grown, key=lambda prefix: (-grown[prefix].total - model.score(prefix), prefix))
        beam = {prefix: grown[prefix] for prefix in ranked[: model.options.beam_size]}
    outputs = sorted((-model.final(prefix, entry.total), prefix) for prefix, entry in beam.items())
    found = [CtcHypothesis(list(prefix), -cost) for cost, prefix in outputs[: model.options.n_best]]
    return found or [CtcHypothesis([], -math.inf)]


def _extend(beam: dict[Prefix, _Entry], scores: Sequence[float], token_ids: Sequence[int], blank: float) -> dict[Prefix, _Entry]:
    """Return all prefixes after one more slot that have a probability above 0."""
    grown: dict[Prefix, _Entry] = {}

    def add(prefix: Prefix, with_blank: float, with_token: float) -> None:
        before = grown.get(prefix, _NOTHING)
        grown[prefix] = _Entry(_add(before.blank, with_blank), _add(before.token, with_token))

    for prefix, entry in beam.items():
        if blank > -math.inf:
            add(prefix, entry.total + blank, -math.inf)
        for score, token in zip(scores, token_ids, strict=True):
            repeats = bool(prefix) and prefix[-1] == token
            if repeats and entry.token + score > -math.inf:
                add(prefix, -math.inf, entry.token + score)
            if (before := entry.blank if repeats else entry.total) + score > -math.inf:
                add((*prefix, token), -math.inf, before + score)
    return grown


_NOTHING = _Entry(-math.inf, -math.inf)


def _add(one: float, other: float) -> float:
    """Return log(e^one + e^other)."""
    high, low = (one, other) if one >= other else (other, one)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
