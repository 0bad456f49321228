"""Greedy steps of several tokens whose slots know of each other: what is offered for a slot. `kernels.JointStep` chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewstep import BigramCoupling, JointStep
from models.family import EOS
from models.stepwise.beam import ranked
from models.stepwise.config import RIGHT_TO_LEFT, StepwiseSearch
from models.stepwise.orders import GenerationOrder

if TYPE_CHECKING:
    from fewstep.ngram import NgramScorer


def joint_step(order: GenerationOrder, search: StepwiseSearch, ngram: NgramScorer | None) -> JointStep | None:
    """How the search chooses its steps; None: each slot for itself."""
    if not search.chooses_jointly:
        return None
    return JointStep(neighbours=coupling(order, search, ngram), end=search.end_threshold)


def coupling(order: GenerationOrder, search: StepwiseSearch, ngram: NgramScorer | None) -> BigramCoupling:
    """Return the bigram coupling of the tokens of a step."""
    weighed = ngram if search.ngram_weight else None
    return BigramCoupling(ngram=weighed, weight=search.ngram_weight, right_to_left=RIGHT_TO_LEFT.get(order.arrangement, (False,)))


def jointly(step: JointStep) -> Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """What `models.stepwise.greedy.write` chooses by; its margins are infinite."""

    def choose(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        words = ranked(log_probs, step.words, separate_eos=True)
        found = step.choose(*(part.cpu().numpy() for part in words), eos=EOS)
        ids, scores = (torch.from_numpy(part).to(log_probs.device) for part in found)
        return ids, scores, torch.full_like(scores, torch.inf)

    return choose
