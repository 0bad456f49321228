"""The network of the parallel family: a Transformer whose decoder computes all slots of a target at once.

Empty slots read the mask token, or copies or mixtures of source embeddings.

Legend: B batch, S source tokens, T slots. Positions and tokens count from 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.parallel.config import LENGTH_CLASSES, SLOT_TOLERANCE, ParallelConfig, impossible
from fewstep.vocabulary import MASK
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.backbone import Backbone, initialise
from models.common.layers.embeddings import Positions, embed


def slot_inputs(config: ParallelConfig, embedded: Tensor, source_lengths: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Return the inputs [B,size,D] of empty slots from source embeddings [B,S,D], for all inputs but the mask token.

    Sources have `source_lengths` [B] tokens and targets `lengths` [B] slots; inputs of slots past them mean nothing.
    """
    slots = torch.arange(size, device=embedded.device)
    if config.input in ("soft", "gaussian"):
        weights = mixture(config, source_lengths, lengths, slots, embedded.size(1))
        return weights.to(embedded.dtype) @ embedded
    tokens = copied(config, source_lengths, lengths, slots)
    return embedded.gather(1, tokens[:, :, None].expand(-1, -1, embedded.size(2)))


def copied(config: ParallelConfig, source_lengths: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
    """Return the source token [B,T] that each of `slots` [T] copies.

    Slot i of M copies round(i (S - 1) / (M - 1)), half to even, and token 0 if M is 1 (`uniform`); with upsampling f, slot i copies
    floor(i / f) (`repeat`).
    """
    last = source_lengths[:, None] - 1
    if config.input == "repeat":
        tokens = (slots.double() / config.upsampling + SLOT_TOLERANCE).floor().long().expand(len(last), -1)
    else:
        intervals = (lengths[:, None] - 1).clamp(min=1)
        # In integers, since a quotient of floats may fall on the other side of a half.
        whole = slots * last // intervals
        rest = slots * last % intervals
        tokens = whole + ((2 * rest > intervals) | ((2 * rest == intervals) & (whole % 2 == 1)))
    return tokens.minimum(last)


def mixture(config: ParallelConfig, source_lengths: Tensor, lengths: Tensor, slots: Tensor, size: int) -> Tensor:
    """Return the weights [B,T,size] of source tokens in the inputs of `slots` [T].

    `soft` is softmax_j(-(j - c)^2 / t) around c = (i + 1/2) S / M - 1/2 (Wei et al. 2019); `gaussian` is
    softmax_j(-(i - f (j + 1/2))^2 / t) with upsampling f (Gu and Kong 2021). t is the temperature.
    """
    tokens = torch.arange(size, device=slots.device)
    if config.input == "soft":
        centers = (slots + 0.5) * (source_lengths / lengths)[:, None] - 0.5
        distances = tokens - centers[:, :, None]
    else:
        distances = (slots[:, None] - config.upsampling * (tokens + 0.5)).expand(len(lengths), -1, -1)
    scores = -distances.square() / config.copy_temperature
    return scores.masked_fill((tokens >= source_lengths[:, None])[:, None], -torch.inf).softmax(2)


class Source(NamedTuple):
    """The encoder's output for a batch of sources, with their embeddings."""

    memories: list[Memory]
    embedded: Tensor
    """The embeddings [B,S,D] of the source tokens, without position codes."""
    tokens: Tensor
    """The numbers [B] of source tokens with EOS."""
    lengths: Tensor | None
    """The logits of the target length, [B,LENGTH_CLASSES]; None with CTC."""

    def select(self, rows: Tensor) -> Source:
        """Return the sentences `rows`, which may repeat."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return Source([memory.select(rows) for memory in self.memories], self.embedded[rows], self.tokens[rows], lengths)


class ParallelModel(Backbone):
    """A network that computes all slots of a target with one call of its decoder."""

    outputs: Tensor
    """The tokens [W] that slots can write."""
    output_index: Tensor
    """The index [V] of each token in `outputs`; 0 for the others."""

    def __init__(self, config: ParallelConfig, sizes: Sizes) -> None:
        """Initialise the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.slot_positions = Positions.of(config, config.max_slots)
        self.length = None if config.uses_ctc else nn.Embedding(LENGTH_CLASSES, config.width)
        possible = torch.ones(sizes.target, dtype=torch.bool)
        possible[impossible(config)] = False
        self.register_buffer("outputs", possible.nonzero()[:, 0], persistent=False)
        self.register_buffer("output_index", (possible.cumsum(0) - 1).where(possible, 0), persistent=False)
        initialise(self)

    @torch.no_grad()
    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        return {**super().codes(), "slot_codes": self.slot_positions(torch.arange(self.config.max_slots))}

    def read(self, source: Tensor, source_lengths: Tensor) -> Source:
        """Encode sources [B,S] with EOS."""
        states, mask = self.encoded(source, source_lengths)
        embedded = embed(source, self.source_embedding or self.target_embedding)
        memories = self.decoder.memories(states, mask)
        if self.length is None:
            return Source(memories, embedded, source_lengths, None)
        real = torch.arange(source.size(1), device=source.device) < source_lengths[:, None]
        mean = (states * real[:, :, None]).sum(1) / source_lengths[:, None]
        return Source(memories, embedded, source_lengths, mean @ self.length.weight.t())

    def inputs(self, source: Source, lengths: Tensor, size: int) -> Tensor:
        """Return the inputs [B,size,D] of empty slots, without position codes, for targets of `lengths` [B] slots."""
        if self.config.input == "mask":
            return self.embedded(torch.full((len(lengths), size), MASK, device=lengths.device))
        return slot_inputs(self.config, source.embedded, source.tokens, lengths, size)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return the inputs [B,T,D] of slots that are shown `tokens` [B,T], without position codes."""
        return embed(tokens, self.target_embedding)

    def states(self, inputs: Tensor, lengths: Tensor, source: Source) -> Tensor:
        """Return the states [B,T,D] of slots with inputs [B,T,D], of which the first `lengths` [B] are real."""
        positions = self.slot_positions(torch.arange(inputs.size(1), device=inputs.device)).to(inputs.dtype)
        found: Tensor = self.decoder(self.dropout(inputs + positions), source.memories, padding_mask(lengths, inputs.size(1)))
        return found

    def output_weight(self) -> Tensor:
        """Return the output projection [W,D] to the tokens that slots can write."""
        return self.target_embedding.weight[self.outputs]


def build(config: ParallelConfig, sizes: Sizes) -> ParallelModel:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return ParallelModel(config, sizes)
