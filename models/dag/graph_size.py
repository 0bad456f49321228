"""The number of vertices of a sentence's graph."""

from __future__ import annotations

import torch
from torch import Tensor

from fewstep.families.dag.config import DagConfig

LENGTHS = 256
"""The number of classes of the length predictor; the last class includes all longer targets."""


def graph_lengths(config: DagConfig, source: Tensor, target: Tensor, factor: Tensor | float) -> Tensor:
    """Return the number of vertices [B] for `source` [B] tokens with EOS and `target` [B] tokens with BOS and EOS.

    The factor f is [B] or one number. For n source tokens without EOS and m target tokens, a graph has

    - int(f (n + 2)) vertices with `graph_size: source` by the conventions of the paper, and int(f (n + 1)) by those of v2,
    - int(f (m - 2)) + 2 vertices with `graph_size: predicted`,
    - int(f) + 2 vertices with `graph_size: fixed`,

    but at least 2.
    """
    if config.graph_size == "source":
        vertices = factor * (source + (1 if config.conventions == "paper" else 0))
    elif config.graph_size == "predicted":
        vertices = factor * (target - 2) + 2
    else:
        vertices = factor * torch.ones_like(source) + 2
    return vertices.long().clamp(min=2)


def decoding_factor(config: DagConfig) -> float:
    """Return the factor that decoding uses, the mean of the lowest and the highest one."""
    return sum(config.factors) / 2


def vertex_counts(config: DagConfig) -> Tensor:
    """Return the number of vertices in decoding for each source length with EOS or, if the network predicts it, for each target
    length."""
    lengths = torch.arange(LENGTHS if config.graph_size == "predicted" else config.max_positions + 1)
    vertices = graph_lengths(config, lengths, lengths.clamp(min=2), decoding_factor(config))
    return vertices.clamp(max=config.max_vertices)


def fits(config: DagConfig, source_length: int, target_length: int) -> bool:
    """Return whether a pair (lengths without EOS) can be trained on.

    The source must be within `max_positions`, the smallest graph that may be drawn must hold BOS, target and EOS, and the largest
    one must not exceed `max_vertices`.
    """
    source, target = torch.tensor([source_length + 1]), torch.tensor([target_length + 2])
    low, high = (int(graph_lengths(config, source, target, factor)) for factor in config.factors)
    return source_length <= config.max_source_tokens and target_length + 2 <= low and high <= config.max_vertices
