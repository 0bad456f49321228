"""Attention and its gradient, query by query; see `kernels.fused_attention`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def weights(query: Floats, keys: Floats, allowed: Mask) -> Floats:
    """Return [S], the softmax of the scores of a query [d] over the allowed [S] keys [S,d]; zeros if no key is allowed."""
    found = np.zeros(len(keys))
    if allowed.any():
        scores = keys[allowed] @ query / np.sqrt(len(query))
        shares = np.exp(scores - scores.max())
        found[allowed] = shares / shares.sum()
    return found


def attention(queries: Floats, keys: Floats, values: Floats, seen: Mask, causal: bool, factors: Floats) -> Floats:
    """Return attention outputs [B,H,T,d] with the factors [B,H,T,S] of dropout."""
    mixed = np.zeros(queries.shape)
    for sentence, head, slot in np.ndindex(*queries.shape[:3]):
        allowed = seen[sentence] & ((np.arange(keys.shape[2]) <= slot) | (not causal))
        at, here = (sentence, head), (sentence, head, slot)
        mixed[here] = (factors[here] * weights(queries[here], keys[at], allowed)) @ values[at]
    return mixed


def gradients(
    queries: Floats, keys: Floats, values: Floats, seen: Mask, causal: bool, factors: Floats, upstream: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of sum(upstream x attention) with respect to queries, keys and values."""
    found = np.zeros(queries.shape), np.zeros(keys.shape), np.zeros(values.shape)
    scale = queries.shape[3] ** -0.5
    for sentence, head, slot in np.ndindex(*queries.shape[:3]):
        at, here = (sentence, head), (sentence, head, slot)
        allowed = seen[sentence] & ((np.arange(keys.shape[2]) <= slot) | (not causal))
        share = weights(queries[here], keys[at], allowed)
        by_share = factors[here] * (values[at] @ upstream[here])
        by_score = share * (by_share - share @ by_share) * scale
        found[0][here] = by_score @ keys[at]
        found[1][at] += by_score[:, None] * queries[here]
        found[2][at] += (factors[here] * share)[:, None] * upstream[here]
    return found
