"""The number of vertices of the graphs of a batch, and the pairs that fit them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fewstep.families.dag.config import DagConfig
from fewstep.families.dag.graph_size import unrounded_vertices


def graph_lengths(config: DagConfig, source: Tensor, target: Tensor, factor: Tensor | float) -> Tensor:
    """Return the number of vertices [B] for `source` [B] tokens with EOS and `target` [B] tokens with BOS and EOS, at least 2.

    The factor is [B] or one number; see `fewstep.families.dag.graph_size.unrounded_vertices`.
    """
    return unrounded_vertices(config, source.float(), target.float(), factor).long().clamp(min=2)


def fits(config: DagConfig, source_length: int, target_length: int) -> bool:
    """Return whether a pair (lengths without EOS) can be trained on.

    The source must be within `max_positions`, the smallest graph that may be drawn must hold BOS, target and EOS, and the largest
    one must neither exceed `max_vertices` nor be out of reach of the target's steps with a `max_transition_length`. The bounds of a
    graph with segments are those of one segment for the whole target, since a separator of spans takes one vertex and no factor.
    """
    if config.segments:
        config = replace(config, graph_size="predicted")
    source, target = torch.tensor([source_length + 1]), torch.tensor([target_length + 2])
    low, high = (int(graph_lengths(config, source, target, factor)) for factor in config.factors)
    reach = config.max_vertices if config.max_transition_length is None else (target_length + 1) * config.max_transition_length + 1
    return source_length <= config.max_source_tokens and target_length + 2 <= low and high <= min(config.max_vertices, reach)
