"""How many vertices a sentence's graph has."""

from __future__ import annotations

import torch
from torch import Tensor

from models.dag.config import DagConfig

LENGTHS = 256
"""Classes of the length predictor; the last stands for all longer targets, too."""


def graph_lengths(config: DagConfig, source: Tensor, target: Tensor, factor: Tensor | float) -> Tensor:
    """[B]: vertices of the graphs for `source` [B] tokens with EOS and `target` [B] tokens with BOS and EOS, `factor` [B] or one.

    source: int(f (n + 1)) by the conventions of v2, n tokens without EOS; by those of the paper int(f (n + 2)).
    predicted: int(f (m - 2)) + 2 for m target tokens. fixed: int(f) + 2. Never less than 2.
    """
    if config.graph_size == "source":
        found = factor * (source + (1 if config.conventions == "paper" else 0))
    elif config.graph_size == "predicted":
        found = factor * (target - 2) + 2
    else:
        found = factor * torch.ones_like(source) + 2
    return found.long().clamp(min=2)


def decoding_factor(config: DagConfig) -> float:
    """The middle of the range."""
    return sum(config.factors) / 2


def fits(config: DagConfig, source_length: int, target_length: int) -> bool:
    """Can a target of so many tokens be written for so long a source (both without EOS): is the source short enough, and does the
    smallest graph that may be drawn hold BOS, target and EOS, the largest no more than `max_vertices`?"""
    source, target = torch.tensor([source_length + 1]), torch.tensor([target_length + 2])
    low, high = (int(graph_lengths(config, source, target, factor)) for factor in config.factors)
    return source_length < config.max_positions and target_length + 2 <= low and high <= config.max_vertices
