"""Joint choice of the slots of a greedy step. This module finds the candidates; `fewstep.JointStep` chooses among them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fewstep import JointStep
from fewstep.vocabulary import EOS
from models.stepwise.search.top_tokens import top_k_tokens


def choose_jointly(step: JointStep) -> Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return a function for `models.stepwise.search.greedy.write` that chooses with `step`; its margins are infinite."""

    def choose(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        candidates = top_k_tokens(log_probs, step.candidates, separate_eos=True)
        chosen = step.choose(*(part.cpu().numpy() for part in candidates), eos=EOS)
        ids, scores = (torch.from_numpy(part).to(log_probs.device) for part in chosen)
        return ids, scores, torch.full_like(scores, torch.inf)

    return choose
