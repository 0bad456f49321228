"""A greedy step with coupled slots, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.search.coupling import BigramCoupling
from fewstep.search.joint_step import JointStep

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
            tokens[row, end], log_probs[row, end] = eos, ends[row, end]
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
