"""From written tokens to outputs: where they end, which slots they are charged for, and their natural order."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.family import EOS, Hypothesis
from models.stepwise.arrangement import restore
from models.stepwise.orders import GenerationOrder


def stops(ids: Tensor) -> Tensor:
    """[...]: does a step [...,z] end its output?"""
    return (ids == EOS).any(-1)


def charged(order: GenerationOrder, ids: Tensor, room: Tensor) -> Tensor:
    """[R,z], True at the slots of a step [R,z] whose probability counts: all up to the first EOS, or all of a step that may end
    in either direction. None beyond the longest output, which is `room` [R] slots away.

    What a first EOS or the limit cuts off may be any token: together they have probability 1.
    """
    inside = torch.arange(ids.size(1), device=ids.device) < room[:, None]
    if order.stop == "per-direction":
        return inside
    ended = (ids == EOS).to(torch.int8)
    return inside & (ended.cumsum(1) - ended == 0)


class Outputs(NamedTuple):
    """N outputs in natural order."""

    tokens: Tensor
    """[N,T]; of each row the first `lengths - ended` count"""
    lengths: Tensor
    """[N] tokens with EOS, if there is one"""
    ended: Tensor
    """[N] 1 where EOS was written, 0 where the longest output cut it"""

    @classmethod
    def cut(cls, order: GenerationOrder, flat: Tensor, written: Tensor) -> Outputs:
        """From flat tokens [N,T], of which the first `written` [N] were written: what stands before the first EOS, or, where a
        step may end in either direction, whatever is not EOS."""
        inside = torch.arange(flat.size(1), device=flat.device) < written[:, None]
        ends = (flat == EOS) & inside
        if order.stop == "per-direction":
            dropped = ends | ~inside
            flat = flat.gather(1, dropped.to(torch.int8).argsort(dim=1, stable=True))
        else:
            dropped = (ends.cumsum(1) > 0) | ~inside
        counts, ended = (~dropped).sum(1), ends.any(1).long()
        return cls(restore(order, flat, counts), counts + ended, ended)


def hypotheses(outputs: Outputs, scores: Tensor, steps: Tensor, margin: Tensor) -> list[Hypothesis]:
    """For each output its hypothesis; all [N]."""
    counts = outputs.lengths - outputs.ended
    columns = zip(*(values.tolist() for values in (outputs.tokens, counts, scores, steps, margin)), strict=True)
    return [Hypothesis(row[:count], score, calls, {"margin": gap}) for row, count, score, calls, gap in columns]
