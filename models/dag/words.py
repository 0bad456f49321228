"""The words that a vertex's probabilities are normalised over in training: all, or a sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Words(NamedTuple):
    """Some words of the vocabulary, those of a batch's targets among them."""

    weight: Tensor
    """[N,D] their embeddings"""
    targets: Tensor
    """[B,M] the targets by their places among these words"""
    bias: Tensor | None
    """[N] what is added to their logits: log of how many words each stands for"""
    smoothing: float
    """The share of a target's score that is the mean of all words'"""


def choose(weight: Tensor, targets: Tensor, sampled: int | None = None, smoothing: float = 0.0) -> Words:
    """All words of weight [V,D], or those of `targets` [B,M] and `sampled` others, drawn evenly without replacement.

    A word that is drawn stands for others / sampled words, so that the sum over the sample of e^(logit + bias) is on average that
    over the vocabulary (importance sampling with even proposals: Bengio and Senecal 2003; the batch's own words always in the
    sample: Jean et al. 2015, section 3.2).
    """
    if sampled is None:
        return Words(weight, targets, None, smoothing)
    own, places = torch.unique(targets, return_inverse=True)
    is_other = torch.ones(len(weight), dtype=torch.bool, device=weight.device)
    is_other[own] = False
    others = is_other.nonzero()[:, 0]
    drawn = others[torch.randperm(len(others), device=weight.device)[:sampled]]
    bias = torch.zeros(len(own) + len(drawn), device=weight.device)
    if len(drawn):
        bias[len(own) :] = math.log(len(others) / len(drawn))
    return Words(weight[torch.cat((own, drawn))], places, bias, smoothing)
