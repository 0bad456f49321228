"""Bigram coupling: adjacent tokens that are chosen in one step are scored as a pair, by beam search and by greedy joint steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fewstep.native import fewstep_native

if TYPE_CHECKING:
    from fewstep_native import F32, I64

    from fewstep.ngram import NgramScorer


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


@dataclass(frozen=True, kw_only=True)
class JointStep:
    """The choice of a greedy step: for each direction, the tokens with the highest sum of log-probabilities and coupling scores."""

    coupling: BigramCoupling = NO_COUPLING
    """Without coupling each slot takes its best token."""
    end_threshold: float = 0.0
    """If positive, the output ends at the first slot by which it has ended with at least this probability,
    1 - prod_i (1 - p_i(EOS)). If 0, it ends where EOS is the most probable token."""
    candidates: int = 4
    """Best tokens of each slot among which the step is chosen (W)."""

    def choose(self, scores: F32, ids: I64, ends: F32, *, eos: int) -> tuple[I64, F32]:
        """Choose the steps of R independent rows: their tokens [R,z] and the log-probabilities [R,z] of these.

        `scores` [R,z,W] float32 are the log-probabilities of the best tokens other than `eos`, best first (minus infinity: no
        token), at most `candidates` per slot, `ids` [R,z,W] int64 are these tokens, and `ends` [R,z] float32 are the
        log-probabilities of `eos`. Where an output ends, `eos` is returned; later slots of the row are undefined. Raises ValueError
        for other shapes.
        """
        arguments = {**self.coupling.native(), "end_threshold": self.end_threshold}
        chosen, log_probs = fewstep_native.choose_jointly(scores, ids, ends, eos=eos, **arguments)
        return chosen.reshape(ends.shape), log_probs.reshape(ends.shape)

    def native(self) -> dict[str, Any]:
        """Return keyword arguments of the native searches."""
        return {**self.coupling.native(), "end_threshold": self.end_threshold, "num_candidates": self.candidates}


INDEPENDENT_SLOTS = JointStep()
