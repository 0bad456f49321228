"""Greedy steps of several tokens whose slots know of each other: alone, neighbours may repeat or contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.beam import STRANGERS, Neighbours

if TYPE_CHECKING:
    from fewstep_native import F32, I64

__all__ = ["SLOT_BY_SLOT", "JointStep"]


@dataclass(frozen=True, kw_only=True)
class JointStep:
    """How a greedy step is chosen.

    Of each direction those words are taken that have the highest sum of log-probabilities and links.
    """

    neighbours: Neighbours = STRANGERS
    """Without links each slot takes its best word."""
    end: float = 0.0
    """Above 0: the output ends at the first slot by which it has ended with at least this probability, 1 - prod_i (1 - p_i(EOS)).
    0: where EOS is the likeliest."""
    words: int = 4
    """Best words of each slot that are offered (W)."""

    def choose(self, scores: F32, ids: I64, ends: F32, *, eos: int) -> tuple[I64, F32]:
        """Steps of rows that do not know of each other: their words [R,z] and the log-probabilities [R,z] of these.

        `scores` [R,z,W] float32 are log-probabilities of the best words but `eos`, best first (minus infinity: none), at most
        `words` of each slot, `ids` [R,z,W] int64 the words, `ends` [R,z] float32 the log-probabilities of `eos`, which is written
        where the output ends; what stands after it means nothing. Raises ValueError for other shapes.
        """
        from kernels.native import fewstep_native

        chosen, log_probs = fewstep_native.choose_jointly(
            scores, ids, ends, eos=eos, end_threshold=self.end, **self.neighbours.native()
        )
        return chosen.reshape(ends.shape), log_probs.reshape(ends.shape)

    def native(self) -> dict[str, Any]:
        """Arguments of the native searches."""
        return {**self.neighbours.native(), "end_threshold": self.end, "num_candidates": self.words}


SLOT_BY_SLOT = JointStep()
