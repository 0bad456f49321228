"""The tokens of vertices: the best ones for a search, and those over which training normalises."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.vocabulary import BOS, EOS, RESERVED, UNK
from models.common.layers.backbone import Backbone
from models.common.layers.logits import logits_parts
from models.common.top_k import rank


class VertexTokens(NamedTuple):
    """The best tokens of each vertex, best first."""

    scores: Tensor
    """The log-probabilities, [B,L,W]; minus infinity where there are fewer tokens."""
    ids: Tensor
    """The token ids, [B,L,W]."""


def top_k_tokens(
    states: Tensor, lengths: Tensor, network: Backbone, count: int, *, allow_unknown: bool, allowed: Tensor | None = None
) -> VertexTokens:
    """Return the best `count` tokens of each vertex by the logits of a network, for states [B,L,D] of graphs of `lengths` [B]
    vertices.

    The first vertex can emit only BOS and the last one only EOS. The others can emit all tokens except reserved ones, restricted to
    the `allowed` [B,V] tokens if these are given.
    """
    flat = states.flatten(0, 1)
    size = network.sizes.target
    count = min(count, size)
    never = banned_mask(size, flat.device, allow_unknown=allow_unknown)
    scores, ends = (flat.new_empty(len(flat), width, dtype=torch.float32) for width in (count, 2))
    ids = torch.empty((len(flat), count), dtype=torch.int64, device=flat.device)
    sentence_of = torch.arange(len(states), device=flat.device).repeat_interleave(states.size(1))
    for part in logits_parts(len(flat), size, flat.device):
        logits = network.logits(flat[part])
        if allowed is not None:
            logits = logits.masked_fill(~allowed[sentence_of[part]], -torch.inf)
        scores[part], ids[part], ends[part] = rank(logits, count, never, (BOS, EOS))
    top = VertexTokens(scores.view(*states.shape[:2], count), ids.view(*states.shape[:2], count))
    _set_ends(top, ends.view(*states.shape[:2], 2), lengths)
    return top


def banned_mask(size: int, device: torch.device, *, allow_unknown: bool) -> Tensor:
    """Return [size], True at the tokens that no vertex between the ends emits. The reserved tokens come first."""
    token = torch.arange(size, device=device)
    mask = token < len(RESERVED)
    return mask & (token != UNK) if allow_unknown else mask


def _set_ends(top: VertexTokens, ends: Tensor, lengths: Tensor) -> None:
    """Make BOS the only token of first vertices and EOS that of last ones, scored by their log-probabilities `ends` [B,L,2]."""
    vertices = torch.arange(top.ids.size(1), device=lengths.device)
    first = (vertices == 0).expand(len(lengths), -1)
    last = vertices == lengths[:, None] - 1
    for is_end, end, token in (first, 0, BOS), (last, 1, EOS):
        top.scores.masked_fill_(is_end[:, :, None], -torch.inf)
        top.scores[:, :, 0] = torch.where(is_end, ends[:, :, end], top.scores[:, :, 0])
        top.ids[:, :, 0].masked_fill_(is_end, token)


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
