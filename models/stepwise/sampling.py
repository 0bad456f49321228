"""Nucleus sampling (Holtzman et al. 2020): tokens drawn from the likeliest ones that together have probability `top_p`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.family import Hypothesis
from models.stepwise.config import StepwiseSearch
from models.stepwise.ensemble import Ensemble, begin
from models.stepwise.greedy import write
from models.stepwise.model import StepwiseModel
from models.training.seeds import seed_of


def sample(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    listed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """`n_best` independent outputs for each source [B,S], likeliest first; `limits` [B] are in tokens with EOS, `listed` [B,V] says
    what may be written.

    A sentence's random numbers depend on the seed and on the sentence alone, so that its outputs do not depend on company.
    """
    count = search.n_best
    ids, lengths, longest = (values.repeat_interleave(count, 0) for values in (source, source_lengths, limits))
    numbers = _numbers(source, source_lengths, search, int(limits.max()) + model.order.step_size).to(source.device)

    def choose(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return draw(log_probs, numbers[rows, slot : slot + log_probs.size(1)], search)

    listed = None if listed is None else listed.repeat_interleave(count, 0)
    found = write(begin(model, ids, lengths, listed), model.order, longest, search, choose)
    groups = [[one for (one,) in found[start : start + count]] for start in range(0, len(found), count)]
    return [sorted(group, key=lambda one: -one.score) for group in groups]


def _numbers(source: Tensor, lengths: Tensor, search: StepwiseSearch, slots: int) -> Tensor:
    """[B*n,slots] in [0, 1); the first of a sentence are the same however many there are."""
    rows = [ids[:length] for ids, length in zip(source.tolist(), lengths.tolist(), strict=True)]
    streams = [np.random.Generator(np.random.Philox(seed_of(search.sampling.seed, *ids, "sampling"))) for ids in rows]
    drawn = [stream.random((slots, search.n_best)).T for stream in streams]
    return torch.from_numpy(np.concatenate(drawn)).float()


def draw(log_probs: Tensor, numbers: Tensor, search: StepwiseSearch) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens by log-probabilities [R,z,V] and `numbers` [R,z] in [0, 1), their log-probabilities, and how far each number is from
    another token's."""
    ranked, ids = log_probs.sort(dim=-1, descending=True, stable=True)
    probabilities = (ranked / search.sampling.temperature).softmax(-1)
    until = probabilities.cumsum(-1)
    kept = probabilities.masked_fill(until - probabilities >= search.sampling.top_p, 0.0)
    ends = kept.cumsum(-1)
    threshold = (numbers * ends[..., -1])[..., None]
    place = (ends <= threshold).sum(-1, keepdim=True).clamp(max=log_probs.size(-1) - 1)
    # Rounding must not reach a token of probability zero.
    place = torch.minimum(place, (kept > 0).sum(-1, keepdim=True) - 1)
    end = ends.gather(-1, place)
    distance = torch.minimum(end - threshold, threshold - end + kept.gather(-1, place)).squeeze(-1)
    return ids.gather(-1, place).squeeze(-1), ranked.gather(-1, place).squeeze(-1), distance
