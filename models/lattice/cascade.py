"""Cascaded decoding in two iterations (Deng and Rush 2020): the network proposes candidates, and scores adjacent ones.

The segments of its training begin with BOS, so that decoding has the contexts of training: for unigrams the row (p, BOS), which
predicts slot p from the source; for bigrams the row (p + 1, y), which carries candidate y of slot p, attends to itself and to the
row (p, BOS), and predicts slot p + 1.

Legend: B batch, N slots, K candidates, H heads, D width, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fewstep.families.lattice.config import LatticeSearch
from fewstep.vocabulary import BOS, EOS, PAD, RESERVED
from models.common.layers.attention import Memory, SelfAttention
from models.common.layers.embeddings import embed
from models.common.layers.logits import logits_parts
from models.lattice.markov import mix
from models.lattice.model import LatticeModel, apply_layer
from models.lattice.scoring import LatticeScores, SlotTensors, score_rows


class Seen(NamedTuple):
    """The keys and values [B,N,1,H,D/H] of the rows of BOS in one layer."""

    keys: Tensor
    values: Tensor


def cascade(
    model: LatticeModel, memories: list[Memory], slots: SlotTensors, search: LatticeSearch
) -> tuple[SlotTensors, LatticeScores]:
    """Return `slots` with the candidates that the model proposes, and the scores of the lattices of encoded sources."""
    size, count = slots.token_ids.shape[1:]
    unigrams, seen = unigram_rows(model, memories, size)
    ids = proposals(model, unigrams, slots, count, search.length_window)
    bigrams = bigram_rows(model, ids.clamp(min=0), memories, seen)
    filled = slots._replace(token_ids=ids)
    return filled, score_rows(model, torch.cat((unigrams[:, :1], bigrams.flatten(1, 2)), 1), filled, search, size)


def bigram_states(model: LatticeModel, target: Tensor, memories: list[Memory]) -> Tensor:
    """Return teacher-forced states [B,T,D] that predict targets [B,T] as decoding does: the first as a unigram, the others from the
    token before them."""
    unigrams, seen = unigram_rows(model, memories, target.size(1))
    given = [Seen(*(part[:, :-1] for part in one)) for one in seen]
    return torch.cat((unigrams[:, :1], bigram_rows(model, target[:, :-1, None], memories, given)[:, :, 0]), 1)


def unigram_rows(model: LatticeModel, memories: list[Memory], size: int) -> tuple[Tensor, list[Seen]]:
    """Return the states [B,N,D] of rows of BOS at the first `size` positions, and what bigrams see of them in each layer."""
    seen: list[Seen] = []

    def attend(attention: SelfAttention, x: Tensor) -> Tensor:
        _, keys, values = attention.projection(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
        seen.append(Seen(keys[:, :, None], values[:, :, None]))
        output: Tensor = attention.output(values.flatten(2))
        return output

    begin = torch.full((len(memories[0].keys), size), BOS, device=memories[0].keys.device)
    rows = embed(begin, model.target_embedding) + model.position_codes(size)
    return model.scored(rows, memories, attend), seen


def bigram_rows(model: LatticeModel, tokens: Tensor, memories: list[Memory], seen: list[Seen]) -> Tensor:
    """Return the states [B,N,K,D] of rows that carry `tokens` [B,N,K] of slots p at positions p + 1."""
    _, size, count = tokens.shape
    x = (embed(tokens, model.target_embedding) + model.position_codes(size + 1)[1:, None]).flatten(1, 2)
    for layer, memory, before in zip(model.scorer, memories, seen, strict=True):
        x = apply_layer(layer, x, memory, partial(_attend_both, before=before, count=count))
    states: Tensor = model.decoder.norm(x)
    return states.view(len(tokens), size, count, -1)


def _attend_both(attention: SelfAttention, x: Tensor, before: Seen, count: int) -> Tensor:
    """Apply self-attention to rows [B,N*K,D] over themselves and the row of BOS of their slot."""
    queries, keys, values = (
        part.unflatten(1, (-1, count)) for part in attention.projection(x).unflatten(2, (3, attention.heads, -1)).unbind(2)
    )
    output: Tensor = attention.output(mix(queries, (keys, before.keys), (values, before.values)).flatten(1, 2).flatten(2))
    return output


def proposals(model: LatticeModel, unigrams: Tensor, slots: SlotTensors, count: int, window: int) -> Tensor:
    """Return the `count` likeliest tokens [B,N,K] of each slot for states [B,N,D]; -1 for none, and past the longest output.

    As in the authors' code, EOS and, after the shortest output, PAD take one of the K places each where the output can have ended,
    and EOS takes one elsewhere if it is among the likeliest, unless the length is fixed. No other reserved token is proposed.
    """
    batch, size, _ = unigrams.shape
    place = torch.arange(size, device=unigrams.device).expand(batch, size)
    least, most = slots.min_lengths[:, None], slots.max_lengths[:, None]
    forced = torch.stack((place >= least, place > least), -1).flatten(0, 1)
    flat = unigrams.flatten(0, 1)
    kept = min(count, model.target_embedding.num_embeddings)
    found = torch.full((len(flat), count), EOS, device=flat.device)
    for part in logits_parts(len(flat), model.target_embedding.num_embeddings, flat.device):
        logits = model.logits(flat[part]).float()
        ends = logits[:, EOS].clone() if window else torch.full_like(logits[:, EOS], -torch.inf)
        logits[:, : len(RESERVED)] = -torch.inf
        logits[:, EOS] = ends.masked_fill(forced[part, 0], torch.inf)
        logits[:, PAD].masked_fill_(forced[part, 1], torch.inf)
        found[part, :kept] = logits.topk(kept, 1).indices
    ids = found.view(batch, size, count)
    missing = (ids < len(RESERVED)) | (place >= most)[..., None]
    return ids.masked_fill(missing, -1)
