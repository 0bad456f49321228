"""The normalisers of a lattice's scores (section 4 of the paper leaves the choice open), computed without holding logits [R,V].

Legend: B batch, N slots, K candidates, R rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.vocabulary import EOS
from models.common.layers.linear import TokenTable
from models.common.layers.logits import logits_parts


def full(states: Tensor, table: TokenTable) -> Tensor:
    """Return log sum_v exp(states w_v) [...] over the vocabulary for states [...,D], computed for some rows at a time."""
    flat = states.flatten(0, -2)
    normalizers = torch.empty(len(flat), device=flat.device)
    for part in logits_parts(len(flat), table.num_embeddings, flat.device):
        normalizers[part] = table.logits(flat[part]).float().logsumexp(1)
    return normalizers.view(states.shape[:-1])


def union(states: Tensor, tokens: Tensor, weight: Tensor) -> Tensor:
    """Return normalisers [B,R] for states [B,R,D] over EOS and distinct `tokens` [B,W] of a sentence. Negative ids are ignored."""
    normalizers = torch.empty(states.shape[:2], device=states.device)
    for row, (rows, ids) in enumerate(zip(states, tokens, strict=True)):
        distinct = ids[ids >= 0].unique()
        vectors = weight[torch.cat((distinct, distinct.new_tensor([EOS])))]
        for part in logits_parts(len(rows), len(vectors), rows.device):
            normalizers[row, part] = (rows[part] @ vectors.t()).float().logsumexp(1)
    return normalizers


def local(scores: Tensor, exits: Tensor) -> Tensor:
    """Return normalisers [...] over the next slot, from its logits [...,K] (minus infinity: no candidate) and that of EOS [...]."""
    return torch.cat((scores, exits[..., None]), -1).float().logsumexp(-1)
