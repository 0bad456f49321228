"""The accuracy of a system on contrastive pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stages.contrastive.sentences import AGREEMENT, FREQUENCIES, Error
from stages.shared.scoring.pairs import Scored


class Pair(NamedTuple):
    """The scores of a translation and of the same translation with one error."""

    error: Error
    right: Scored
    wrong: Scored

    @property
    def compared(self) -> bool:
        """Whether both translations have a score."""
        return self.right.log_probability is not None and self.wrong.log_probability is not None

    @property
    def correct(self) -> bool:
        """Whether the right translation has the higher log-probability. A tie is not correct."""
        return self._wins(1, 1)

    @property
    def correct_by_mean(self) -> bool:
        """Whether the right translation has the higher log-probability per token."""
        return self._wins(self.right.tokens, self.wrong.tokens)

    def _wins(self, right_tokens: int, wrong_tokens: int) -> bool:
        assert self.right.log_probability is not None
        assert self.wrong.log_probability is not None
        return self.right.log_probability / right_tokens > self.wrong.log_probability / wrong_tokens


def summarise(pairs: Sequence[Pair], distances: Mapping[str, range]) -> dict[str, Any]:
    """Return the content of `contrastive.json`: numbers of compared and of correct pairs in total, by type, distance and frequency.

    `bands` are errors in the number of verbs by distance, `distances` and `frequencies` errors of all types. A bin that no pair of
    the set is in is left out.
    """
    types = {pair.error.type: pair.error.type for pair in pairs}
    verbs = [pair for pair in pairs if pair.error.type == AGREEMENT]
    return {
        **_counts(pairs),
        "left_out": sum(not pair.compared for pair in pairs),
        "types": [{"type": name, **_counts(pair for pair in pairs if pair.error.type == name)} for name in types],
        "bands": _binned(verbs, "distance", distances, lambda error: error.distance),
        "distances": _binned(pairs, "distance", distances, lambda error: error.distance),
        "frequencies": _binned(pairs, "frequency", FREQUENCIES, lambda error: error.frequency),
    }


def _binned(
    pairs: Sequence[Pair], name: str, bins: Mapping[str, range], key: Callable[[Error], int | None]
) -> list[dict[str, Any]]:
    inside: dict[str, list[Pair]] = {label: [] for label in bins}
    for pair in pairs:
        if (value := key(pair.error)) is not None:
            inside[next(label for label, values in bins.items() if value in values)].append(pair)
    return [{name: label, **_counts(found)} for label, found in inside.items() if found]


def _counts(pairs: Iterable[Pair]) -> dict[str, int]:
    compared = [pair for pair in pairs if pair.compared]
    return {
        "pairs": len(compared),
        "correct": sum(pair.correct for pair in compared),
        "correct_by_mean": sum(pair.correct_by_mean for pair in compared),
    }
