"""The precomputed self-attention of bigrams: a slot that attends only to itself returns its own values.

The values depend only on its token and its position. Legend: V vocabulary, P positions, D width, R rows.

With M = W_out W_values, c = W_out b_values + b_out, e_y the scaled embedding of token y and q_p the code of position p, post-norm
has

    x + attention(x) = (I + M) e_y + (I + M) q_p + c

and pre-norm, which normalises x = e_y + q_p with gains g and offsets b, has with ' for centred vectors and s the deviation of x

    x + attention(norm(x)) = e_y + q_p + (M g e'_y + M g q'_p) / s + M b + c
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewstep.config.options import Precision
from fewstep.config.problems import Problem
from models.common.inference import Precisions
from models.common.layers.attention import Memory, SelfAttention
from models.common.layers.embeddings import embed
from models.lattice.model import LatticeModel, after_self_attention, apply_layer


class BigramTables(NamedTuple):
    """The terms of the first layer's residual sum after self-attention."""

    tokens: Tensor
    """The terms of tokens, [V,D]."""
    positions: Tensor
    """The terms of positions, [P,D]."""
    token_values: Tensor | None
    """The terms of tokens that are divided by the deviation, [V,D]; None for post-norm."""
    position_values: Tensor | None
    """The terms of positions that are divided by the deviation, [P,D]; None for post-norm."""
    constant: Tensor
    """The constant term, [D]."""
    epsilon: float
    """The epsilon of the normalisation."""

    def to(self, dtype: torch.dtype) -> BigramTables:
        """Return the terms in another precision."""
        terms: dict[str, Any] = {name: term.to(dtype) for name, term in self._asdict().items() if isinstance(term, Tensor)}
        return self._replace(**terms)


@torch.no_grad()
def bigram_tables(model: LatticeModel) -> BigramTables:
    """Return the tables of a network whose weights do not change any more."""
    vocabulary = torch.arange(model.sizes.target, device=model.target_embedding.weight.device)
    tokens = embed(vocabulary, model.target_embedding)
    positions = model.position_codes(model.config.max_positions)
    layer = model.scorer[0]
    norm = layer.attention_residual.norm
    matrix, constant = _own_values(layer.attention)
    if not layer.attention_residual.first:
        return BigramTables(tokens + tokens @ matrix.t(), positions + positions @ matrix.t(), None, None, constant, norm.eps)
    scaled = (matrix * norm.weight).t()
    token_values, position_values = ((x - x.mean(1, keepdim=True)) @ scaled for x in (tokens, positions))
    return BigramTables(tokens, positions, token_values, position_values, matrix @ norm.bias + constant, norm.eps)


class Scorers:
    """A network and its tables in the precisions that searches ask for."""

    def __init__(self, model: LatticeModel, tables: BigramTables | None) -> None:
        """`tables` are those of weights that do not change any more; None: they may change."""
        self._models = Precisions(model, frozen=tables is not None)
        self._tables = {"float32": tables}

    def __getitem__(self, precision: Precision) -> tuple[LatticeModel, BigramTables | None]:
        """Return the network in a precision, and its tables, which are computed in float32."""
        model = self._models[precision]
        exact = self._tables["float32"]
        if exact is not None and precision not in self._tables:
            self._tables[precision] = exact.to(model.target_embedding.weight.dtype)
        return model, self._tables.get(precision)

    def problems(self, precision: Precision) -> Iterator[Problem]:
        """Yield a problem for a precision that torch does not have on this device."""
        return self._models.problems(precision)


def _own_values(attention: SelfAttention) -> tuple[Tensor, Tensor]:
    """Return M [D,D] and c [D], computed in float64."""
    width = attention.output.in_features
    output, values = attention.output.weight.double(), attention.projection.weight[2 * width :].double()
    constant = output @ attention.projection.bias[2 * width :].double() + attention.output.bias
    return (output @ values).float(), constant.float()


def row_states(
    model: LatticeModel, tokens: Tensor, positions: Tensor, memories: list[Memory], tables: BigramTables | None
) -> Tensor:
    """Return the states [B,R,D] of rows that carry `tokens` [B,R] at `positions` [R].

    Without `tables`, for a network whose weights may change, self-attention is computed as in training.
    """
    if tables is None:
        x = embed(tokens, model.target_embedding) + model.position_codes(int(positions.max()) + 1)[positions]
        return model.scored(x, memories)
    first, *others = model.scorer
    x = tables.tokens[tokens] + tables.positions[positions]
    if tables.token_values is not None and tables.position_values is not None:
        inverse = (x.var(-1, unbiased=False, keepdim=True) + tables.epsilon).rsqrt_()
        x = x.add_((tables.token_values[tokens] + tables.position_values[positions]).mul_(inverse))
    x = x + tables.constant
    if not first.attention_residual.first:
        x = first.attention_residual.norm(x)
    x = after_self_attention(first, x, memories[0])
    for layer, memory in zip(others, memories[1:], strict=True):
        x = apply_layer(layer, x, memory)
    output: Tensor = model.decoder.norm(x)
    return output
