"""The best tokens of each slot of a step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.vocabulary import EOS


class SlotCandidates(NamedTuple):
    """The best W tokens of each of the z slots of R rows."""

    scores: Tensor
    """The log-probabilities [R,z,W], best first; minus infinity where there are fewer tokens."""
    ids: Tensor
    """The tokens [R,z,W], in the same order."""
    eos: Tensor
    """The log-probability of EOS in each slot [R,z]."""


def slot_candidates(log_probs: Tensor, count: int, *, separate_eos: bool) -> SlotCandidates:
    """Return the best `count` tokens by log-probabilities [R,z,V], which are changed in place; without EOS if `separate_eos`."""
    eos = log_probs[..., EOS].clone()
    if separate_eos:
        log_probs[..., EOS] = -torch.inf
    return SlotCandidates(*log_probs.topk(min(count, log_probs.size(2))), eos)
