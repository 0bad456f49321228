"""CTC by its definition (Graves et al. 2006), slow: `models.parallel.ctc` computes the same, and so does
`fewstep.search.ctc_beam` with a beam without limit.

A slot writes one of V symbols, of which one is the blank. Legend: T slots, M target tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import groupby


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
