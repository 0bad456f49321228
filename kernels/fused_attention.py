"""Attention and its gradient for training on a CPU; at any time only the weights of one head of one sentence are held.

Queries q [B,H,T,d], keys k and values v [B,H,S,d] are float32 or bfloat16 with any strides between rows of d values. `seen` [B,S]
bool marks the visible keys (None: all); with `causal` query t sees keys up to t only. For each sentence and head

    o_t = sum_s m_ts p_ts v_s        p_ts = exp(q_t k_s / sqrt(d) - n_t), which sum to 1 over the keys that query t sees

m is the mask of dropout: 0 with its probability p and otherwise 1 / (1 - p), by a hash of the seed and the numbers of sentence,
head, query and key; the gradients need the same probability and seed.
Products and sums are float32. A query that sees no key gives zeros. Results do not depend on `threads` (None: as many as torch
uses). Raises TypeError and ValueError for tensors that do not fit together.

`kernels.reference.training` is the slow reference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewstep.native import fewstep_native
from kernels.tensor_bits import tensor_bits


class AttentionInputs(NamedTuple):
    """The inputs of attention."""

    queries: Tensor
    """[B,H,T,d] the queries q."""
    keys: Tensor
    """[B,H,S,d] the keys k."""
    values: Tensor
    """[B,H,S,d] the values v."""
    seen: Tensor | None = None
    """[B,S] bool, True for visible keys; None: all keys are visible."""
    causal: bool = False
    dropout: float = 0.0
    """The probability p, from 0 to below 1, with which a weight is dropped."""
    seed: int = 0
    """The seed of dropout, from 0 to 2^64 - 1."""


def fused_attention_(inputs: AttentionInputs, mixed: Tensor, *, threads: int | None = None) -> Tensor:
    """Write o into `mixed` [B,H,T,d] and return the normalisers n [B,H,T] float32, minus infinity where no key is visible."""
    normalisers = torch.empty(inputs.queries.shape[:3])
    fewstep_native.fused_attention(
        *_arrays(inputs),
        tensor_bits(mixed, "mixed"),
        normalisers.numpy(),
        causal=inputs.causal,
        dropout=inputs.dropout,
        seed=inputs.seed,
        threads=threads or torch.get_num_threads(),
    )
    return normalisers


def fused_attention_gradients_(
    inputs: AttentionInputs,
    normalisers: Tensor,
    upstream: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
    *,
    threads: int | None = None,
) -> None:
    """Write the gradients of sum(upstream o), upstream [B,H,T,d], with respect to queries, keys and values.

    `normalisers` are those of `fused_attention_`.
    """
    fewstep_native.fused_attention_gradients(
        *_arrays(inputs),
        normalisers.numpy(),
        tensor_bits(upstream, "upstream"),
        *(tensor_bits(gradient, "gradients") for gradient in gradients),
        causal=inputs.causal,
        dropout=inputs.dropout,
        seed=inputs.seed,
        threads=threads or torch.get_num_threads(),
    )


def _arrays(inputs: AttentionInputs) -> tuple[Any, Any, Any, Any]:
    queries, keys, values = (tensor_bits(getattr(inputs, name), name) for name in ("queries", "keys", "values"))
    return queries, keys, values, None if inputs.seen is None else inputs.seen.numpy()
