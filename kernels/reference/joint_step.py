"""A greedy step whose slots know of each other, word by word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fewstep.search.coupling import BigramCoupling
from fewstep.search.joint_step import JointStep

Word = tuple[float, int]
"""A log-probability and an id."""


def choose(
    step: JointStep, scores: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], ends: npt.NDArray[np.float32], *, eos: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """See `kernels.JointStep.choose`."""
    words, log_probs = ids[..., 0].copy(), scores[..., 0].copy()
    directions = len(step.coupling.right_to_left)
    for row in range(len(ids)):
        offered = [list(zip(*slot, strict=True)) for slot in zip(scores[row].tolist(), ids[row].tolist(), strict=True)]
        for direction in range(min(directions, len(offered)) if step.coupling.ngram else 0):
            chain = best_chain(offered[direction::directions], partial(link, step.coupling, direction))
            log_probs[row, direction::directions], words[row, direction::directions] = zip(*chain, strict=True)
        end = first_end(ends[row], scores[row, :, 0], step.end_threshold)
        if end is not None:
            words[row, end], log_probs[row, end] = eos, ends[row, end]
    return words, log_probs


def best_chain(slots: Sequence[Sequence[Word]], link: Callable[[int, int], float]) -> list[Word]:
    """Of the words offered for each slot those whose log-probabilities and links between neighbours have the highest sum."""
    chains = [(word[0], [word]) for word in slots[0]]
    for offered in slots[1:]:
        grown = [[(score + w[0] + link(chain[-1][1], w[1]), [*chain, w]) for score, chain in chains] for w in offered]
        chains = [max(choices, key=itemgetter(0)) for choices in grown]
    return max(chains, key=itemgetter(0))[1]


def first_end(ends: Sequence[float] | npt.NDArray[Any], best: Sequence[float] | npt.NDArray[Any], threshold: float) -> int | None:
    """The slot at which an output ends: the first by which it has ended with probability `threshold`, or with 0 where EOS is at
    least as likely as the best other token."""
    going = 1.0
    for slot, (end, other) in enumerate(zip(ends, best, strict=True)):
        going *= 1.0 - np.exp(float(end))
        if 1.0 - going >= threshold if threshold else end >= other:
            return slot
    return None


def link(linked: BigramCoupling, direction: int, before: int, word: int) -> float:
    """weight (log p(right | left) - log p(right)) of a word and the one that its direction wrote before."""
    assert linked.ngram is not None
    left, right = (word, before) if linked.right_to_left[direction] else (before, word)
    _, state = linked.ngram.step(linked.ngram.empty, left)
    return linked.weight * (linked.ngram.step(state, right)[0] - linked.ngram.step(linked.ngram.empty, right)[0])
