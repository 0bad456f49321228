"""Bigram coupling: adjacent tokens that are chosen in one step are scored as a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer

__all__ = ["NO_COUPLING", "BigramCoupling"]


@dataclass(frozen=True, kw_only=True)
class BigramCoupling:
    """A score for pairs of adjacent output tokens that one step writes.

    Slots d, d + h, d + 2h, ... of a step belong to one direction and are adjacent in the output. Each adjacent pair adds

        weight (log p(right | left) - log p(right))

    in nats, by an n-gram model. Slots that are chosen independently repeat or contradict each other; this score counters that.
    """

    ngram: NgramScorer | None = None
    """The n-gram model over the network's target ids, or None for no coupling."""
    weight: float = 0.0
    right_to_left: tuple[bool, ...] = (False,)
    """For each of the h directions, True if its tokens precede in the output those that it wrote earlier."""

    def native(self) -> dict[str, Any]:
        """Return keyword arguments of native functions."""
        native = None if self.ngram is None else self.ngram.native
        return {"ngram": native, "ngram_weight": self.weight, "right_to_left": self.right_to_left}


NO_COUPLING = BigramCoupling()
