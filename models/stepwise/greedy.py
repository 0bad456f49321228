"""Greedy decoding: the likeliest token in each slot."""

from __future__ import annotations

import torch
from torch import Tensor

from models.family import EOS, PAD, Hypothesis
from models.stepwise.config import StepwiseSearch
from models.stepwise.incremental import Incremental
from models.stepwise.model import StepwiseModel
from models.stepwise.order import restore
from models.stepwise.scores import ban, penalty


def greedy(
    model: StepwiseModel, source: Tensor, source_lengths: Tensor, search: StepwiseSearch, limits: Tensor
) -> list[list[Hypothesis]]:
    """One hypothesis for each source [B,S]; `limits` [B] are the longest outputs in tokens with EOS."""
    state = Incremental(model, source, source_lengths, 1)
    alive = torch.arange(len(source), device=source.device)
    tokens = torch.full((len(source), int(limits.max())), PAD, device=source.device)
    score = torch.zeros(len(source), device=source.device)
    margin = torch.full_like(score, torch.inf)
    counts = torch.zeros_like(limits)
    previous = None
    for step in range(tokens.size(1)):
        logits = state.step(previous)[:, 0]
        normaliser = logits.logsumexp(1)
        best, ids = ban(logits, search, step).topk(2)
        score[alive] += best[:, 0] - normaliser
        margin[alive] = torch.minimum(margin[alive], best[:, 0] - best[:, 1])
        tokens[alive, step] = ids[:, 0]
        counts[alive] = step + 1
        going = (ids[:, 0] != EOS) & (limits[alive] > step + 1)
        previous = ids[:, :1]
        if not bool(going.all()):
            kept = going.nonzero()[:, 0]
            if len(kept) == 0:
                break
            alive, previous = alive[kept], previous[kept]
            state.select(kept, kept)
    score = score / penalty(search, counts)
    found = zip(tokens.tolist(), score.tolist(), counts.tolist(), margin.tolist(), strict=True)
    return [[_hypothesis(model, *values)] for values in found]


def _hypothesis(model: StepwiseModel, tokens: list[int], score: float, count: int, margin: float) -> Hypothesis:
    written = tokens[: count - 1] if tokens[count - 1] == EOS else tokens[:count]
    return Hypothesis(restore(model.order, written), score, count, {"margin": margin})
