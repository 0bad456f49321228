"""Self-attention of bigrams before any sentence is seen: a slot that sees itself alone mixes its own values.

They depend on its word and its position. Legend: V vocabulary, P positions, D width, R rows.

With M = W_out W_values, c = W_out b_values + b_out, e_y the scaled vector of word y and q_p the code of position p, post-norm has

    x + attention(x) = (I + M) e_y + (I + M) q_p + c

and pre-norm, whose normalisation (gains g, offsets b) is of x = e_y + q_p, with ' for what is centred and s the deviation of x,

    x + attention(norm(x)) = e_y + q_p + (M g e'_y + M g q'_p) / s + M b + c
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from models.common.layers.attention import Memory, SelfAttention
from models.common.layers.embeddings import embed
from models.lattice.model import LatticeModel, above, through


class BigramTables(NamedTuple):
    """The first layer's sum after self-attention, in parts."""

    words: Tensor
    """[V,D]"""
    positions: Tensor
    """[P,D]"""
    word_values: Tensor | None
    """[V,D] what is divided by the deviation (pre-norm only)"""
    position_values: Tensor | None
    """[P,D]"""
    constant: Tensor
    """[D]"""
    epsilon: float
    """Of the normalisation."""


@torch.no_grad()
def bigram_tables(model: LatticeModel) -> BigramTables:
    """The tables of a network that does not change any more."""
    vocabulary = torch.arange(model.sizes.target, device=model.target_embedding.weight.device)
    words, positions = embed(vocabulary, model.target_embedding), model.position_codes(model.config.max_positions)
    layer = model.scorer[0]
    norm = layer.attention_residual.norm
    matrix, constant = _own_values(layer.attention)
    if not layer.attention_residual.first:
        return BigramTables(words + words @ matrix.t(), positions + positions @ matrix.t(), None, None, constant, norm.eps)
    gained = (matrix * norm.weight).t()
    of_words, of_positions = ((x - x.mean(1, keepdim=True)) @ gained for x in (words, positions))
    return BigramTables(words, positions, of_words, of_positions, matrix @ norm.bias + constant, norm.eps)


def _own_values(attention: SelfAttention) -> tuple[Tensor, Tensor]:
    """M [D,D] and c [D], in float64 on the way."""
    width = attention.output.in_features
    output, values = attention.output.weight.double(), attention.projection.weight[2 * width :].double()
    constant = output @ attention.projection.bias[2 * width :].double() + attention.output.bias
    return (output @ values).float(), constant.float()


def rows(model: LatticeModel, words: Tensor, places: Tensor, memories: list[Memory], tables: BigramTables | None) -> Tensor:
    """States [B,R,D] of rows that carry `words` [B,R] at positions `places` [R]. Without `tables` (of a network that may still
    change) self-attention is computed as in training."""
    if tables is None:
        x = embed(words, model.target_embedding) + model.position_codes(int(places.max()) + 1)[places]
        return model.scored(x, memories)
    first, *others = model.scorer
    x = tables.words[words] + tables.positions[places]
    if tables.word_values is not None and tables.position_values is not None:
        inverse = (x.var(-1, unbiased=False, keepdim=True) + tables.epsilon).rsqrt_()
        x = x.add_((tables.word_values[words] + tables.position_values[places]).mul_(inverse))
    x = x + tables.constant
    if not first.attention_residual.first:
        x = first.attention_residual.norm(x)
    x = above(first, x, memories[0])
    for layer, memory in zip(others, memories[1:], strict=True):
        x = through(layer, x, memory)
    output: Tensor = model.decoder.norm(x)
    return output
