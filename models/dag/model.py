"""The network of the dag family: a Transformer whose decoder reads empty vertices and links them (Huang et al. 2022, section
3.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.dag.config import DagConfig
from fewstep.families.dag.graph_size import LENGTHS, decoding_factor, unrounded_vertices, vertex_counts
from fewstep.networks.dag_network import VERTEX_KINDS
from fewstep.vocabulary import BOS, EOS, MASK, PAD
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.backbone import Backbone, initialise
from models.common.layers.embeddings import Positions, embed
from models.common.layers.linear import Linear
from models.dag.segments import SegmentCodes, Segments
from models.dag.transitions import transition_log_probs


class Source(NamedTuple):
    """The encoder's output for a batch of sources."""

    memories: list[Memory]
    lengths: Tensor | None
    """The logits of the target length with BOS and EOS, [B,LENGTHS]; None if the network does not predict it."""


class DagModel(Backbone):
    """A network that writes all vertices of a graph with one call of its decoder."""

    def __init__(self, config: DagConfig, sizes: Sizes) -> None:
        """Initialise the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.vertex_positions = Positions.of(config, config.max_vertices)
        self.links = Links(config)
        self.length = nn.Embedding(LENGTHS, config.width) if config.graph_size == "predicted" else None
        self.segments = SegmentCodes(config) if config.segments else None
        self.vertex_inputs = nn.Embedding(VERTEX_KINDS, config.width) if config.vertex_inputs == "own" else None
        initialise(self, normal=config.initialisation == "normal")

    @torch.no_grad()
    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights: codes of vertices, their contribution to
        transitions, and the sizes of graphs."""
        vertices = torch.arange(self.config.max_vertices)
        links = self.links
        codes = links.positions(vertices)
        width = self.config.width
        parts = [codes @ part.weight[:, width:].t() + part.bias for part in (links.queries, links.keys, links.gates)]
        return {
            **super().codes(),
            "slot_codes": self.vertex_positions(vertices),
            "link_codes": torch.cat(parts, 1),
            "graph_lengths": torch.from_numpy(vertex_counts(self.config, decoding_factor(self.config))),
        }

    def source_inputs(self, source: Tensor) -> Tensor:
        """Return the inputs [B,S,D] of the encoder for sources [B,S]; mask tokens are numbered in networks with segments."""
        inputs = super().source_inputs(source)
        return inputs if self.segments is None else inputs + self.segments.of_masks(source)

    def read(self, source: Tensor, source_lengths: Tensor) -> Source:
        """Encode sources [B,S] with EOS."""
        if self.config.source_bos:
            source = F.pad(source, (1, 0), value=BOS)
            source_lengths = source_lengths + 1
        states, mask = self.encoded(source, source_lengths)
        memories = self.decoder.memories(states, mask)
        if self.length is None:
            return Source(memories, None)
        real = torch.arange(source.size(1), device=source.device) < source_lengths[:, None]
        mean = (states * real[:, :, None]).sum(1) / source_lengths[:, None]
        return Source(memories, mean @ self.length.weight.t())

    def states(self, vertices: Tensor, lengths: Tensor, source: Source, segments: Segments | None = None) -> Tensor:
        """Return the states [B,L,D] of vertices with input tokens [B,L]. The first `lengths` [B] vertices of graphs are real."""
        positions = self.vertex_positions(torch.arange(vertices.size(1), device=vertices.device))
        embedded = embed(vertices, self.target_embedding)
        if self.vertex_inputs is not None:
            for token, own in zip((BOS, MASK, EOS), self.vertex_inputs.weight, strict=True):
                embedded = torch.where((vertices == token)[:, :, None], own.to(embedded.dtype), embedded)
        inputs = embedded + positions.to(embedded.dtype)
        if segments is not None and self.segments is not None:
            inputs = inputs + self.segments(segments.numbers)
        found: Tensor = self.decoder(self.dropout(inputs), source.memories, padding_mask(lengths, vertices.size(1)))
        return found

    def transitions(self, states: Tensor, lengths: Tensor, segments: Segments | None = None) -> Tensor:
        """Return the float32 log-probabilities [B,L,D] that vertex i + 1 + d follows vertex i, for the D next vertices."""
        found: Tensor = self.links(states, lengths) if segments is None else self.links(states, segments.ends, segments.reach)
        return found


class Links(nn.Module):
    """The transition probabilities: attention heads on states and positions of vertices, mixed by a gate of the earlier vertex."""

    def __init__(self, config: DagConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.max_length = config.max_transition_length
        self.positions = Positions.of(config, config.max_vertices)
        self.queries = Linear(2 * config.width, config.width)
        self.keys = Linear(2 * config.width, config.width)
        self.gates = Linear(2 * config.width, config.heads)

    def forward(self, states: Tensor, ends: Tensor, reach: int | None = None) -> Tensor:
        """Return the transitions [B,L,D] for states [B,L,D] and `ends`, graph lengths [B] or limits of vertices [B,L], none of
        which is more than `reach` vertices away; see `transition_log_probs`."""
        positions = self.positions(torch.arange(states.size(1), device=states.device))
        x = torch.cat((states, positions.to(states.dtype).expand_as(states)), 2)
        queries, keys = (part(x).unflatten(2, (self.heads, -1)) for part in (self.queries, self.keys))
        bounds = [bound for bound in (self.max_length, reach) if bound is not None]
        log_gates = self.gates(x).float().log_softmax(2)
        return transition_log_probs(queries, keys, log_gates, ends, min(bounds, default=None))


def empty_vertices(lengths: Tensor, size: int) -> Tensor:
    """Return the inputs [B,size] of empty vertices: BOS and EOS at the ends, MASK between them, and PAD beyond."""
    position = torch.arange(size, device=lengths.device)
    last = lengths[:, None] - 1
    vertices = torch.where(position < last, MASK, PAD).where(position != last, EOS)
    vertices[:, 0] = BOS
    return vertices


def build(config: DagConfig, sizes: Sizes) -> DagModel:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return DagModel(config, sizes)


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
