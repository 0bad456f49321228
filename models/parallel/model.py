"""The network of the parallel family: a Transformer whose decoder computes all slots of a target at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from fewstep.config.network import Sizes
from fewstep.families.parallel.config import LENGTH_CLASSES, ParallelConfig
from fewstep.families.parallel.tokens import impossible
from fewstep.vocabulary import MASK
from models.common.layers.attention import Memory, padding_mask
from models.common.layers.backbone import Backbone
from models.common.layers.embeddings import Positions, embed
from models.common.layers.initialisation import initialise
from models.parallel.inputs import slot_inputs


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
