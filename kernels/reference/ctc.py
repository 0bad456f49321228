"""CTC by its definition (Graves et al. 2006) and prefix beam search over its slots, slow: `models.parallel.ctc` and
`fewstep.search.ctc_beam` compute the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from fewstep.search.ctc_beam import CtcBeamOptions, CtcHypothesis
from fewstep.vocabulary import EOS


def collapse(path: Sequence[int], blank: int) -> tuple[int, ...]:
    """Return the text of a path of symbols: equal neighbours are merged, then blanks removed."""
    return tuple(symbol for symbol, _ in groupby(path) if symbol != blank)


def paths(log_probs: Sequence[Sequence[float]]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield all V^T paths through log-probabilities [T,V], each with its log-probability."""
    for path in itertools.product(range(len(log_probs[0])), repeat=len(log_probs)):
        yield path, sum(row[symbol] for row, symbol in zip(log_probs, path, strict=True))


def text_probabilities(log_probs: Sequence[Sequence[float]], blank: int) -> dict[tuple[int, ...], float]:
    """Return the probability of every text that T slots can write, by enumeration of all paths."""
    found: dict[tuple[int, ...], float] = {}
    for path, log_prob in paths(log_probs):
        text = collapse(path, blank)
        found[text] = found.get(text, 0.0) + math.exp(log_prob)
    return found


def log_likelihood(log_probs: Sequence[Sequence[float]], target: Sequence[int], blank: int) -> float:
    """Return log P(target) by the forward recurrence over the 2 M + 1 states blank, y_1, blank, ..., y_M, blank."""
    states = [blank, *itertools.chain.from_iterable((token, blank) for token in target)]
    forward = [log_probs[0][state] if index < 2 else -math.inf for index, state in enumerate(states)]
    for row in log_probs[1:]:
        before = forward
        forward = []
        for index, state in enumerate(states):
            reached = [before[index], before[index - 1] if index else -math.inf]
            if index > 1 and state != blank and state != states[index - 2]:
                reached.append(before[index - 2])
            forward.append(_log_sum(reached) + row[state])
    return _log_sum(forward[-2:])


def best_path(log_probs: Sequence[Sequence[float]], target: Sequence[int], blank: int) -> float:
    """Return the log-probability of the best path that writes a target; minus infinity without such a path."""
    return max((log_prob for path, log_prob in paths(log_probs) if collapse(path, blank) == tuple(target)), default=-math.inf)


def _log_sum(values: Sequence[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(value - top) for value in values))


Prefix = tuple[int, ...]


class Scorer(Protocol):
    """A language model over token ids."""

    @property
    def begin(self) -> int: ...
    def step(self, state: int, piece: int) -> tuple[float, int]: ...


def ctc_beam(
    scores: Any, token_ids: Any, blanks: Any, lengths: Any, *, options: CtcBeamOptions, ngram: Scorer | None = None
) -> list[list[CtcHypothesis]]:
    """Return the n best outputs of each sentence, best first, for arrays as in `fewstep.search.ctc_beam.ctc_beam`."""
    model = _Model(ngram if options.ngram_weight else None, options)
    rows = zip(*(array.tolist() for array in (scores, token_ids, blanks, lengths)), strict=True)
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

    def __init__(self, ngram: Scorer | None, options: CtcBeamOptions) -> None:
        self.ngram = ngram
        self.options = options
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
