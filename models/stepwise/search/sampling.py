"""Nucleus sampling (Holtzman et al. 2020): tokens are drawn among the most probable ones that together hold probability `top_p`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewstep.config.options import NucleusSampling
from fewstep.families.stepwise.config import StepwiseSearch
from fewstep.translation import Hypothesis
from models.stepwise.ensemble import Ensemble
from models.stepwise.model import StepwiseModel
from models.stepwise.search.greedy import write
from models.stepwise.search.incremental import begin
from models.training.seeds import seed_of


def sample(
    model: StepwiseModel | Ensemble,
    source: Tensor,
    source_lengths: Tensor,
    search: StepwiseSearch,
    limits: Tensor,
    allowed: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return `n_best` independent outputs for each source [B,S], the most probable first.

    `limits` [B] are maximum output lengths in tokens with EOS; `allowed` [B,V] is a shortlist (None: all tokens). The random
    numbers of a sentence depend on the seed and on the sentence alone, so that its outputs do not depend on the batch.
    """
    count = search.n_best
    ids, lengths, row_limits = (values.repeat_interleave(count, 0) for values in (source, source_lengths, limits))
    numbers = _numbers(source, source_lengths, search, int(limits.max()) + model.order.step_size).to(source.device)

    def choose(log_probs: Tensor, slot: int, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return draw(log_probs, numbers[rows, slot : slot + log_probs.size(1)], search.sampling)

    allowed = None if allowed is None else allowed.repeat_interleave(count, 0)
    written = write(begin(model, ids, lengths, allowed), model.order, row_limits, search, choose)
    groups = [[one for (one,) in written[start : start + count]] for start in range(0, len(written), count)]
    return [sorted(group, key=lambda one: -one.score) for group in groups]


def _numbers(source: Tensor, lengths: Tensor, search: StepwiseSearch, slots: int) -> Tensor:
    """Return uniform numbers [B*n,slots] in [0, 1); the first samples of a sentence do not depend on the number of samples."""
    rows = [ids[:length] for ids, length in zip(source.tolist(), lengths.tolist(), strict=True)]
    streams = [np.random.Generator(np.random.Philox(seed_of(search.sampling.seed, *ids, "sampling"))) for ids in rows]
    drawn = [stream.random((slots, search.n_best)).T for stream in streams]
    return torch.from_numpy(np.concatenate(drawn)).float()


def draw(log_probs: Tensor, numbers: Tensor, sampling: NucleusSampling) -> tuple[Tensor, Tensor, Tensor]:
    """Draw tokens by log-probabilities [R,z,V] with uniform `numbers` [R,z] in [0, 1).

    Returns the tokens, their log-probabilities, and the distance of each number from the interval of another token, all [R,z].
    """
    ranked, ids = log_probs.sort(dim=-1, descending=True, stable=True)
    probabilities = (ranked / sampling.temperature).softmax(-1)
    until = probabilities.cumsum(-1)
    nucleus = probabilities.masked_fill(until - probabilities >= sampling.top_p, 0.0)
    ends = nucleus.cumsum(-1)
    threshold = (numbers * ends[..., -1])[..., None]
    position = (ends <= threshold).sum(-1, keepdim=True).clamp(max=log_probs.size(-1) - 1)
    # Rounding must not reach a token of probability zero.
    position = torch.minimum(position, (nucleus > 0).sum(-1, keepdim=True) - 1)
    end = ends.gather(-1, position)
    distance = torch.minimum(end - threshold, threshold - end + nucleus.gather(-1, position)).squeeze(-1)
    return ids.gather(-1, position).squeeze(-1), ranked.gather(-1, position).squeeze(-1), distance
