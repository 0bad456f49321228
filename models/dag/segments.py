"""Graphs with a segment for each masked span of a text, in pre-training (Huang, Ke and Huang 2023, "Directed Acyclic Transformer
Pre-training", PreDAT).

Legend: B batch, M tokens of a target, L vertices, K segments, D width. A target is BOS span BOS span ... span EOS. The vertex of
its first token is 0; a span of m tokens with a factor f has int(f m) vertices, and the BOS or EOS that follows it the next one. No
transition leads past this vertex, so that every path visits it, and the sum over paths is the product of the sums of segments:

    log P(target | source) = sum_k log P(span_k | source)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.families.dag.config import DagConfig
from fewstep.families.dag.graph_size import decoding_factor
from fewstep.vocabulary import BOS, MASK
from models.common.layers.embeddings import Embedding, embed

SEGMENTS = 32
"""The number of different segment codes; further segments have that of the last."""


class Segments(NamedTuple):
    """The segments of the graphs of a batch."""

    separators: Tensor
    """A mask [B,M] of the tokens between two spans."""
    borders: Tensor
    """The vertex of the token in front of each target token's span, [B,M]: of a separator, its own."""
    graph_lengths: Tensor
    """The numbers of vertices, [B]."""
    numbers: Tensor
    """The number of each vertex's segment from 0, [B,L]."""
    ends: Tensor
    """The vertex after the last one that a vertex may lead to, [B,L]."""

    @property
    def reach(self) -> int:
        """The largest number of next vertices that may follow a vertex."""
        vertex = torch.arange(self.ends.size(1), device=self.ends.device)
        return max(1, int((self.ends - 1 - vertex).max()))

    def opened(self, vertices: Tensor) -> Tensor:
        """Return inputs of vertices [B,L] with BOS where segments begin."""
        return vertices.scatter(1, self.borders.where(self.separators, 0), BOS)

    def pinned(self, scores: Tensor) -> Tensor:
        """Return token scores [B,M,L] with which each separator is written at its vertex, with score 0, and nowhere else."""
        here = torch.arange(scores.size(2), device=scores.device) == self.borders[:, :, None]
        return torch.where(self.separators[:, :, None], torch.zeros_like(scores).masked_fill(~here, -torch.inf), scores)


def segments_of(config: DagConfig, ids: Tensor, lengths: Tensor, *, training: bool) -> Segments:
    """Return the segments of targets [B,M] of `lengths` [B] tokens with BOS and EOS.

    Factors are drawn at random for each span in training, else `decoding_factor` is used. Graphs that would exceed `max_vertices`
    are cut, and have no path.
    """
    token = torch.arange(ids.size(1), device=ids.device)
    separators = (ids == BOS) & (token > 0)
    of_token = separators.cumsum(1)
    counts = of_token[:, -1] + 1
    max_segments = int(counts.max())
    in_span = (token > 0) & (token < lengths[:, None] - 1) & ~separators
    sizes = torch.zeros(len(ids), max_segments, dtype=torch.int64, device=ids.device).scatter_add_(1, of_token, in_span.long())
    low, high = config.factors
    factors: Tensor | float = decoding_factor(config)
    if training and low < high:
        factors = low + (high - low) * torch.rand(sizes.shape, device=ids.device)
    steps = ((factors * sizes).long() + 1).where(torch.arange(max_segments, device=ids.device) < counts[:, None], 0)
    borders = F.pad(steps.cumsum(1), (1, 0)).clamp(max=config.max_vertices - 1)
    graph_lengths = borders[:, -1] + 1
    vertices = torch.arange(int(graph_lengths.max()), device=ids.device).expand(len(ids), -1).contiguous()
    numbers = torch.searchsorted(borders[:, 1:].contiguous(), vertices, right=True).minimum(counts[:, None] - 1)
    ends = borders.gather(1, numbers + 1) + 1
    return Segments(separators, borders.gather(1, of_token), graph_lengths, numbers, ends)


class SegmentCodes(Embedding):
    """Learned codes of the numbers of segments; the first has none, so that a graph of one segment is a graph without segments."""

    def __init__(self, config: DagConfig) -> None:
        super().__init__(SEGMENTS, config.width)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return codes [B,L,D] of the segments with these numbers [B,L], from 0."""
        return embed(numbers.clamp(max=SEGMENTS - 1), self) * (numbers > 0)[:, :, None]

    def of_masks(self, source: Tensor) -> Tensor:
        """Return the codes [B,S,D] of the segments that the mask tokens of sources [B,S] stand for; 0 for other tokens."""
        masks = source == MASK
        found: Tensor = self((masks.cumsum(1) - 1).where(masks, 0))
        return found
