"""Scores of tokens by rows of logits and their gradient, row by row; see `kernels.token_scores`."""

from __future__ import annotations

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
