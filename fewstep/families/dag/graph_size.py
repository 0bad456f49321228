"""The number of vertices of a sentence's graph. Arrays of numbers may be of numpy or of torch."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import numpy as np

from fewstep.families.dag.config import DagConfig, DagSearch
from fewstep.sources import Ints

LENGTHS = 256
"""The number of classes of the length predictor; the last class includes all longer targets."""

Numbers = TypeVar("Numbers")


def unrounded_vertices(config: DagConfig, source: Numbers, target: Numbers, factor: Numbers | float) -> Numbers:
    """Return the sizes of graphs before they are rounded down, for `source` tokens with EOS and `target` tokens with BOS and EOS,
    all float32.

    With a factor f, n source tokens without EOS and m target tokens, a graph has

    - f (n + 2) vertices with `graph_size: source` by the conventions of the paper, and f (n + 1) by those of v2,
    - f (m - 2) + 2 vertices with `graph_size: predicted`,
    - f + 2 vertices with `graph_size: fixed`.
    """
    if config.graph_size == "source":
        return factor * (source + (1 if config.conventions == "paper" else 0))  # type: ignore[operator, return-value]
    if config.graph_size == "predicted":
        return factor * (target - 2) + 2  # type: ignore[operator, return-value]
    return factor * (0 * source + 1) + 2  # type: ignore[operator, return-value]


def decoding_factor(config: DagConfig, search: DagSearch | None = None) -> float:
    """Return the factor that a search uses: its own one, or else the mean of the lowest and the highest one of training."""
    if search is not None and search.graph_factor is not None:
        return search.graph_factor
    return sum(config.factors) / 2


@lru_cache
def vertex_counts(config: DagConfig, factor: float) -> Ints:
    """Return the number of vertices in decoding for each source length with EOS or, if the network predicts it, for each target
    length."""
    lengths = np.arange(LENGTHS if config.graph_size == "predicted" else config.max_positions + 1, dtype=np.float32)
    vertices = unrounded_vertices(config, lengths, np.maximum(lengths, 2), factor)
    return vertices.astype(np.int64).clip(2, config.max_vertices)
