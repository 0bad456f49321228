"""Beam search of one sentence over lists, which enumerates every continuation of a step, and a greedy step with coupled slots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fewstep.search.beam import BeamOptions
from fewstep.search.coupling import BigramCoupling, JointStep

Slots = Sequence[Mapping[int, float]]
"""Log-probability of each token, EOS among them, in each slot of a step."""


class Continuation(NamedTuple):
    score: float
    parent: int
    tokens: tuple[int, ...]
    ends: bool


def continuations(options: BeamOptions, tables: Sequence[Slots], live: Sequence[float], remaining: int) -> list[Continuation]:
    """Return all continuations, best first: score(hypothesis) + the sum of its slots' log-probabilities and coupling scores.

    If the first EOS ends the output, the slots after it are `pad` and cost nothing, as do slots beyond `remaining`.
    """
    found = {}
    for parent, slots in enumerate(tables):
        for tokens in itertools.product(*slots[:remaining]):
            scored = _scored(options, tokens)
            score = live[parent] + sum(slots[place][token] for place, token in enumerate(scored)) + _coupling(options, scored)
            written = (*scored, *[options.pad] * (options.step_size - len(scored)))
            found[parent, written] = Continuation(score, parent, written, options.eos in scored)
    possible = [one for one in found.values() if one.score > -math.inf]
    return sorted(possible, key=lambda one: -one.score)


def _scored(options: BeamOptions, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tokens up to the first EOS, or all of them if a step may end in either direction."""
    first = tokens.index(options.eos) + 1 if options.eos in tokens and not options.per_direction else len(tokens)
    return tokens[:first]


def _coupling(options: BeamOptions, tokens: tuple[int, ...]) -> float:
    """Return the coupling score of each token but EOS with the previous token of its direction."""
    ngram, right_to_left = options.coupling.ngram, options.coupling.right_to_left
    if ngram is None:
        return 0.0
    total = 0.0
    for slot in range(len(right_to_left), len(tokens)):
        if tokens[slot] != options.eos:
            left, right = tokens[slot - len(right_to_left)], tokens[slot]
            if right_to_left[slot % len(right_to_left)]:
                left, right = right, left
            _, state = ngram.step(ngram.empty, left)
            total += ngram.step(state, right)[0] - ngram.step(ngram.empty, right)[0]
    return options.coupling.weight * total


class Hypothesis(NamedTuple):
    score: float
    tokens: tuple[int, ...]
    """The flat tokens, with EOS and pads."""


def text(options: BeamOptions, tokens: Sequence[int]) -> list[int]:
    """Return the tokens of a finished hypothesis."""
    return [token for token in tokens if token not in (options.eos, options.pad)]


class BeamSearch:
    """The search of `fewstep.Beam` for one sentence, ranking exactly."""

    def __init__(self, options: BeamOptions, limit: int) -> None:
        self.options = options
        self.limit = limit
        self.live = [Hypothesis(0.0, ())]
        self.finished: list[Hypothesis] = []
        self.count = 0
        self.steps = 0
        self.best = -math.inf
        """Highest log-probability of the finished hypotheses."""
        self.done = False

    def advance(self, tables: Sequence[Slots]) -> None:
        """Take one step from the tables of each live hypothesis."""
        options = self.options
        remaining = self.limit - self.steps * options.step_size
        found = continuations(options, tables, [one.score for one in self.live], remaining)
        self.steps += 1
        forced = remaining <= options.step_size
        for one in found[: options.beam_size]:
            if one.ends or forced:
                self._finish(one)
        threshold = max([self.best, *(one.score for one in found[:1])]) - options.beam_threshold
        alive = [one for one in found if not one.ends and one.score >= threshold][: options.beam_size]
        self.live = [Hypothesis(one.score, (*self.live[one.parent].tokens, *one.tokens)) for one in alive]
        self.done = forced or self.count >= options.beam_size or not self.live or self._settled()

    def _penalty(self, tokens: int) -> float:
        options = self.options
        return float(((5 + tokens) / 6 if options.gnmt else tokens) ** options.length_penalty)

    def _finish(self, one: Continuation) -> None:
        tokens = (*self.live[one.parent].tokens, *one.tokens)
        length = len(text(self.options, tokens)) + one.ends
        self.finished.append(Hypothesis(one.score / self._penalty(length), tokens))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        self.count += 1
        self.best = max(self.best, one.score)

    def _settled(self) -> bool:
        """Return whether no live hypothesis can outrank the worst of the n best."""
        if len(self.finished) < self.options.n_best:
            return False
        shortest = self._penalty(self.steps * self.options.step_size + 1)
        bound = self.live[0].score / max(shortest, self._penalty(self.limit))
        return self.finished[self.options.n_best - 1].score >= bound

    def outcome(self) -> list[tuple[float, list[int]]]:
        """Return the n best hypotheses, distinct."""
        found: dict[tuple[int, ...], float] = {}
        for one in self.finished[: self.options.n_best]:
            found.setdefault(tuple(text(self.options, one.tokens)), one.score)
        return [(score, list(tokens)) for tokens, score in found.items()]


Candidate = tuple[float, int]
"""A log-probability and an id."""


def choose(
    step: JointStep, scores: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], ends: npt.NDArray[np.float32], *, eos: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Choose as `fewstep.JointStep.choose` does."""
    tokens, log_probs = ids[..., 0].copy(), scores[..., 0].copy()
    directions = len(step.coupling.right_to_left)
    for row in range(len(ids)):
        candidates = [list(zip(*slot, strict=True)) for slot in zip(scores[row].tolist(), ids[row].tolist(), strict=True)]
        for direction in range(min(directions, len(candidates)) if step.coupling.ngram else 0):
            chain = best_chain(candidates[direction::directions], partial(link, step.coupling, direction))
            log_probs[row, direction::directions], tokens[row, direction::directions] = zip(*chain, strict=True)
        end = first_end(ends[row], scores[row, :, 0], step.end_threshold)
        if end is not None:
            tokens[row, end] = eos
            log_probs[row, end] = ends[row, end]
    return tokens, log_probs


def best_chain(slots: Sequence[Sequence[Candidate]], link: Callable[[int, int], float]) -> list[Candidate]:
    """Return the candidates of each slot whose log-probabilities and coupling scores have the highest sum."""
    chains = [(word[0], [word]) for word in slots[0]]
    for candidates in slots[1:]:
        grown = [[(score + w[0] + link(chain[-1][1], w[1]), [*chain, w]) for score, chain in chains] for w in candidates]
        chains = [max(choices, key=itemgetter(0)) for choices in grown]
    return max(chains, key=itemgetter(0))[1]


def first_end(ends: Sequence[float] | npt.NDArray[Any], best: Sequence[float] | npt.NDArray[Any], threshold: float) -> int | None:
    """Return the slot at which an output ends, or None.

    It is the first slot by which the output has ended with probability `threshold`, or with 0 the first one where EOS is at least
    as probable as the best other token.
    """
    going = 1.0
    for slot, (end, other) in enumerate(zip(ends, best, strict=True)):
        going *= 1.0 - np.exp(float(end))
        if 1.0 - going >= threshold if threshold else end >= other:
            return slot
    return None


def link(coupling: BigramCoupling, direction: int, before: int, word: int) -> float:
    """Return weight (log p(right | left) - log p(right)) of a token and the previous token of its direction."""
    assert coupling.ngram is not None
    left, right = (word, before) if coupling.right_to_left[direction] else (before, word)
    _, state = coupling.ngram.step(coupling.ngram.empty, left)
    return coupling.weight * (coupling.ngram.step(state, right)[0] - coupling.ngram.step(coupling.ngram.empty, right)[0])
