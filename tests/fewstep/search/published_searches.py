"""The beam search of Zhang, Titov and Sennrich (2020) for one sentence, over lists, as the paper and as their program have it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

EOS = 2
Step = Callable[[tuple[int, ...]], Sequence[Mapping[int, float]]]
"""The log-probability of each token in each slot of the step after a prefix."""
Penalty = Callable[[int], float]
"""The divisor of the log-probability of an output, from its number of slots."""


def first(table: Mapping[int, float], count: int) -> list[tuple[int, float]]:
    return sorted(((token, score) for token, score in table.items() if score > -math.inf), key=lambda pair: -pair[1])[:count]


def text(slots: tuple[int, ...]) -> tuple[int, ...]:
    return slots[: slots.index(EOS)] if EOS in slots else slots


def algorithm_1(step: Step, beam: int, size: int, limit: int, penalty: Penalty) -> list[tuple[float, tuple[int, ...]]]:
    """Return scores and texts by algorithm 1; hypotheses that are not finished only if none is."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    t = 0
    while live and len(finished) < beam and t < limit:
        longer = []
        for score, prefix in live:
            words = [first(slot, beam) for slot in step(prefix)]
            sums = [(sum(p for _, p in chosen), tuple(w for w, _ in chosen)) for chosen in itertools.product(*words)]
            for added, chosen in sorted(sums, key=lambda pair: -pair[0])[:beam]:
                (finished if EOS in chosen else longer).append((score + added, prefix + chosen))
                if EOS in chosen:
                    finished[-1] = (finished[-1][0] / penalty(t + size), finished[-1][1])
        live = sorted(longer, key=lambda pair: -pair[0])[:beam]
        t += size
    found = finished or [(score / penalty(t), slots) for score, slots in live]
    return [(score, text(slots)) for score, slots in sorted(found, key=lambda pair: -pair[0])]


def authors(step: Step, beam: int, size: int, limit: int, penalty: Penalty) -> list[tuple[float, tuple[int, ...]]]:
    """Return scores and texts by the authors' program, for one sentence by itself."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    time = 0
    while time < limit:
        candidates = []
        for score, prefix in live:
            tables = step(prefix)
            if time == 0:
                tables = [{token: p for token, p in table.items() if token != EOS} for table in tables]
            sums: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
            for table in tables:
                sums = sorted(sums, key=lambda pair: -pair[0])[:beam]
                sums = [(total + p, (*chosen, token)) for total, chosen in sums for token, p in first(table, beam)]
            candidates += [(score + total, prefix + chosen) for total, chosen in sums]
        candidates = sorted(candidates, key=lambda pair: -pair[0])[: 2 * beam]
        time += size
        finished += [(score / penalty(time), slots) for score, slots in candidates if EOS in slots]
        finished = sorted(finished, key=lambda pair: -pair[0])[:beam]
        live = [one for one in candidates if EOS not in one[1]][:beam]
        if finished and (not live or finished[-1][0] > live[0][0] / penalty(limit)):
            break
    found = finished or [(score / penalty(time), slots) for score, slots in live]
    return [(score, text(slots)) for score, slots in found]
