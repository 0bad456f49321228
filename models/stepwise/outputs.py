"""Outputs from the tokens of steps: their ends, the slots that count in their scores, and their natural order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.stepwise.orders import GenerationOrder
from fewstep.translation import Hypothesis
from fewstep.vocabulary import EOS
from models.stepwise.arrangement import restore


def ends_output(ids: Tensor) -> Tensor:
    """Return [...], True where a step [...,z] ends its output."""
    return (ids == EOS).any(-1)


def scored_mask(order: GenerationOrder, ids: Tensor, remaining: Tensor) -> Tensor:
    """Return [R,z], True at the slots of a step [R,z] whose probability counts.

    These are all slots up to the first EOS, or all of a step that may end in either direction, within the `remaining` [R] slots of
    the maximum length. Slots after the first EOS or the limit may hold any token, so their total probability is 1.
    """
    inside = torch.arange(ids.size(1), device=ids.device) < remaining[:, None]
    if order.stop == "per-direction":
        return inside
    ended = (ids == EOS).to(torch.int8)
    return inside & (ended.cumsum(1) - ended == 0)


class Outputs(NamedTuple):
    """N outputs in natural order."""

    tokens: Tensor
    """The tokens [N,T]; the first `lengths - ended` of each row count."""
    lengths: Tensor
    """The number of tokens of each output [N], with EOS if it was written."""
    ended: Tensor
    """A flag for each output [N]: 1 if EOS was written, 0 if the maximum length cut it."""

    @classmethod
    def cut(cls, order: GenerationOrder, flat: Tensor, written: Tensor) -> Outputs:
        """Return the outputs of flat tokens [N,T], of which the first `written` [N] were written.

        An output consists of the tokens before the first EOS or, if a step may end in either direction, of all tokens but EOS.
        """
        inside = torch.arange(flat.size(1), device=flat.device) < written[:, None]
        ends = (flat == EOS) & inside
        if order.stop == "per-direction":
            dropped = ends | ~inside
            # The token beside an EOS moves up into its slot.
            flat = flat.gather(1, dropped.to(torch.int8).argsort(dim=1, stable=True))
        else:
            dropped = (ends.cumsum(1) > 0) | ~inside
        counts = (~dropped).sum(1)
        ended = ends.any(1).long()
        return cls(restore(order, flat, counts), counts + ended, ended)


def hypotheses(outputs: Outputs, scores: Tensor, steps: Tensor, margins: Tensor) -> list[Hypothesis]:
    """Return the hypothesis of each output; scores, steps and margins are [N]."""
    counts = outputs.lengths - outputs.ended
    columns = zip(*(values.tolist() for values in (outputs.tokens, counts, scores, steps, margins)), strict=True)
    return [Hypothesis(row[:count], score, calls, {"margin": margin}) for row, count, score, calls, margin in columns]
