"""The tokens over which a vertex's probabilities are normalised in training: the vocabulary, or a sample of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class SampledVocabulary(NamedTuple):
    """N tokens of the vocabulary, including those of a batch's targets."""

    weight: Tensor
    """The embeddings of the tokens, [N,D]."""
    targets: Tensor
    """The targets as indices of the tokens, [B,M]."""
    bias: Tensor | None
    """The term added to each token's logit, [N]: the network's bias, and the logarithm of the number of tokens that it stands for;
    None: no term."""
    smoothing: float
    """The weight of the mean over all tokens in a target's score."""


def sample_vocabulary(
    weight: Tensor, targets: Tensor, num_sampled: int | None = None, smoothing: float = 0.0, bias: Tensor | None = None
) -> SampledVocabulary:
    """Return all tokens of weight [V,D], or those of `targets` [B,M] and `num_sampled` others, drawn uniformly without replacement.

    A drawn token stands for others / sampled tokens, so that the expectation of the sum of e^(logit + bias) over the sample is the
    sum over the vocabulary. This is importance sampling with uniform proposals (Bengio and Senecal 2003), where the batch's own
    tokens are always in the sample (Jean et al. 2015, section 3.2). Tokens that the network's `bias` [V] excludes are neither drawn
    nor smoothed over.
    """
    excludes = bias is not None and smoothing > 0
    if num_sampled is None and not excludes:
        return SampledVocabulary(weight, targets, bias, smoothing)
    own, indices = torch.unique(targets, return_inverse=True)
    is_other = torch.ones(len(weight), dtype=torch.bool, device=weight.device) if bias is None else bias.isfinite()
    is_other[own] = False
    others = is_other.nonzero()[:, 0]
    drawn = others if num_sampled is None else others[torch.randperm(len(others), device=weight.device)[:num_sampled]]
    tokens = torch.cat((own, drawn))
    terms = torch.zeros(len(tokens), device=weight.device) if bias is None else bias[tokens]
    if len(drawn):
        terms[len(own) :] += math.log(len(others) / len(drawn))
    return SampledVocabulary(weight[tokens], indices, terms, smoothing)
