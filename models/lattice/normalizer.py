"""Over what the scores of a lattice sum to 1 (section 4 of the paper leaves it open): four ways, none of which holds [rows, V].

Legend: B batch, N slots, K candidates, R rows, V vocabulary, U words of a sentence's lattice, D width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from models.common.layers.linear import TokenTable
from models.common.losses.cross_entropy import CPU_LOGITS, GPU_LOGITS
from models.family import EOS


def full(states: Tensor, table: TokenTable) -> Tensor:
    """[...]: log sum_v exp(states w_v) of states [...,D], from weights that were laid out for it, some rows at a time."""
    flat = states.flatten(0, -2)
    found = torch.empty(len(flat), device=flat.device)
    for part in _parts(flat, table.num_embeddings):
        found[part] = table.logits(flat[part]).float().logsumexp(1)
    return found.view(states.shape[:-1])


def union(states: Tensor, words: Tensor, weight: Tensor) -> Tensor:
    """[B,R] of states [B,R,D]: over EOS and the distinct `words` [B,W] of each sentence, of which those below 0 are none."""
    found = torch.empty(states.shape[:2], device=states.device)
    for row, (rows, ids) in enumerate(zip(states, words, strict=True)):
        distinct = ids[ids >= 0].unique()
        vectors = weight[torch.cat((distinct, distinct.new_tensor([EOS])))]
        for part in _parts(rows, len(vectors)):
            found[row, part] = (rows[part] @ vectors.t()).float().logsumexp(1)
    return found


def local(scores: Tensor, exits: Tensor) -> Tensor:
    """[...]: over the next slot's candidates by their logits [...,K], minus infinity where there is none, and EOS's [...]."""
    return torch.cat((scores, exits[..., None]), -1).float().logsumexp(-1)


def _parts(states: Tensor, words: int) -> Iterator[slice]:
    """Rows whose logits are held together."""
    rows = max(1, (CPU_LOGITS if states.device.type == "cpu" else GPU_LOGITS) // words)
    return (slice(start, start + rows) for start in range(0, len(states), rows))
