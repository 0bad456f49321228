"""Scores of tokens, masks of dropout, and attention with its gradient, slow; see `kernels.token_scores`, `kernels.dropout` and
`kernels.fused_attention`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def token_scores(logits: Floats, targets: Ids, rows: Ids, scores: Floats, best: Ids, smoothing: float) -> Floats:
    """Return the rows' normalisers [R]; write `scores` [B,M,L] and `best` [B,L]."""
    normalisers = np.empty(len(logits))
    for row, (x, place) in enumerate(zip(logits, rows, strict=True)):
        sentence, vertex = divmod(int(place), scores.shape[2])
        normalisers[row] = x.max() + np.log(np.exp(x - x.max()).sum())
        scores[sentence, :, vertex] = (1 - smoothing) * x[targets[sentence]] + smoothing * x.mean() - normalisers[row]
        best[sentence, vertex] = x.argmax()
    return normalisers


def token_gradients(
    logits: Floats, targets: Ids, rows: Ids, upstream: Floats, normalisers: Floats, smoothing: float, penalty: float = 0.0
) -> Floats:
    """Return [R,V], e G / V - G (1 + 2 c n) softmax(x) + (1 - e) (the gradient of each token)."""
    gradients = np.empty_like(logits)
    for row, (x, place) in enumerate(zip(logits, rows, strict=True)):
        sentence, vertex = divmod(int(place), upstream.shape[2])
        given = upstream[sentence, :, vertex]
        shares = (1 + 2 * penalty * normalisers[row]) * np.exp(x - normalisers[row])
        gradients[row] = given.sum() * (smoothing / len(x) - shares)
        for token, gradient in zip(targets[sentence], given, strict=True):
            gradients[row, token] += (1 - smoothing) * gradient
    return gradients


ROW = 2**16
"""Units of `kernels.dropout` that share a row of the mask."""
WORD = 2**32


def factors(probability: float, seed: int, row: int, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the factors [N] of units of a row, by their positions [N]: 1 / (1 - probability) of those that are kept, else 0."""
    probability = float(np.float32(probability))
    key = (seed + (row + 1) * 0x9E3779B97F4A7C15) % 2**64
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    key ^= key >> 31
    bits: NDArray[Any] = (positions.astype(np.uint64) + key % WORD) % WORD
    bits = (bits ^ bits >> 16) * 0x7FEB352D % WORD ^ key // WORD
    bits = (bits ^ bits >> 15) * 0x846CA68B % WORD
    bits ^= bits >> 16
    return np.where(bits >= round(probability * WORD), 1.0 / (1.0 - probability), 0.0)


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
        at = (sentence, head)
        here = (sentence, head, slot)
        mixed[here] = (factors[here] * weights(queries[here], keys[at], allowed)) @ values[at]
    return mixed


def gradients(
    queries: Floats, keys: Floats, values: Floats, seen: Mask, causal: bool, factors: Floats, upstream: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of sum(upstream x attention) with respect to queries, keys and values."""
    found = np.zeros(queries.shape), np.zeros(keys.shape), np.zeros(values.shape)
    scale = queries.shape[3] ** -0.5
    for sentence, head, slot in np.ndindex(*queries.shape[:3]):
        at = (sentence, head)
        here = (sentence, head, slot)
        allowed = seen[sentence] & ((np.arange(keys.shape[2]) <= slot) | (not causal))
        share = weights(queries[here], keys[at], allowed)
        by_share = factors[here] * (values[at] @ upstream[here])
        by_score = share * (by_share - share @ by_share) * scale
        found[0][here] = by_score @ keys[at]
        found[1][at] += by_score[:, None] * queries[here]
        found[2][at] += (factors[here] * share)[:, None] * upstream[here]
    return found
