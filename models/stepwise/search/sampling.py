"""Nucleus sampling (Holtzman et al. 2020): tokens are drawn among the most probable ones that together hold probability `top_p`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fewstep.config.options import NucleusSampling
from models.training.seeds import seed_of


def random_numbers(rows: Sequence[Sequence[int]], seed: int, slots: int, samples: int) -> Tensor:
    """Return uniform numbers [B,slots,samples] in [0, 1) for sources with EOS.

    Those of a sentence depend on the seed, the sentence and the number of samples, not on the batch or the number of slots.
    """
    streams = [np.random.Generator(np.random.Philox(seed_of(seed, *ids, "sampling"))) for ids in rows]
    return torch.from_numpy(np.stack([stream.random((slots, samples)) for stream in streams])).float()


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
