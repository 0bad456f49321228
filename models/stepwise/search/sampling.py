"""Nucleus sampling (Holtzman et al. 2020): tokens are drawn among the most probable ones that together hold probability `top_p`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fewstep.config.options import NucleusSampling
from models.training.seeds import seed_of

LIKELIEST = 256
"""Tokens that are sorted first. Sorting a whole vocabulary takes longer than all layers of a step."""


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
    probabilities = (log_probs / sampling.temperature).softmax(-1)
    # A step on another device may not wait to learn how large its nuclei are.
    whole = probabilities.device.type != "cpu" or probabilities.size(-1) <= LIKELIEST or sampling.top_p == 1
    found = _drawn_from_all if whole else _drawn_from_likeliest
    tokens, distances = found(probabilities, numbers, sampling.top_p)
    return tokens, log_probs.gather(-1, tokens[..., None]).squeeze(-1), distances


def _drawn_from_all(probabilities: Tensor, numbers: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    return _drawn(*probabilities.sort(dim=-1, descending=True, stable=True), numbers, top_p)


def _drawn_from_likeliest(probabilities: Tensor, numbers: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return what `_drawn_from_all` returns, with a sort of few tokens for rows whose nuclei are small."""
    ids = probabilities.topk(LIKELIEST, sorted=False).indices.sort(-1).values  # of equal probabilities the lower token comes first
    ranked, order = probabilities.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    tokens, distances = _drawn(ranked, ids.gather(-1, order), numbers, top_p)
    # A nucleus ends among these tokens if those above the last of them, whose equals may be missing, hold `top_p`, rounded or not.
    larger = ranked.where(ranked > ranked[..., -1:], 0.0).sum(-1) <= top_p + 1e-4
    if larger.any():
        tokens[larger], distances[larger] = _drawn_from_all(probabilities[larger], numbers[larger], top_p)
    return tokens, distances


def _drawn(ranked: Tensor, ids: Tensor, numbers: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the tokens [...] that the numbers [...] draw from the nuclei of ranked probabilities [...,K], and the distances of
    `draw`."""
    until = ranked.cumsum(-1)
    nucleus = ranked.masked_fill(until - ranked >= top_p, 0.0)
    ends = nucleus.cumsum(-1)
    threshold = (numbers * ends[..., -1])[..., None]
    position = (ends <= threshold).sum(-1, keepdim=True).clamp(max=ranked.size(-1) - 1)
    # Rounding must not reach a token of probability zero.
    position = torch.minimum(position, (nucleus > 0).sum(-1, keepdim=True) - 1)
    end = ends.gather(-1, position)
    distance = torch.minimum(end - threshold, threshold - end + nucleus.gather(-1, position))
    return ids.gather(-1, position).squeeze(-1), distance.squeeze(-1)
