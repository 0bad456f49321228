"""The network of the lattice family: an encoder, and a scorer that predicts a token from those of a segment before it (a Markov
transformer)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fewstep.config.network import Sizes
from fewstep.families.lattice.config import LatticeModelConfig
from fewstep.vocabulary import BOS
from models.common.layers.attention import Memory, SelfAttention
from models.common.layers.backbone import Backbone, initialise
from models.common.layers.blocks import DecoderLayer
from models.common.layers.embeddings import Positions, embed
from models.lattice.markov import attend_alone, attend_segments

Attend = Callable[[SelfAttention, Tensor], Tensor]
"""A function that applies a layer's self-attention to rows [B,R,D]."""


class LatticeModel(Backbone):
    """A network that scores tokens given the token before them, all pairs in one pass."""

    def __init__(self, config: LatticeModelConfig, sizes: Sizes) -> None:
        """Initialise the network. Raises ValueError if the width is not an even multiple of the number of heads."""
        super().__init__(config, sizes)
        self.config = config
        self.target_positions = Positions.of(config, config.max_positions)
        initialise(self)

    def codes(self) -> dict[str, Tensor]:
        """Return the tensors that native code reads in addition to the weights."""
        return {**super().codes(), "slot_codes": self.position_codes(self.max_positions)}

    def position_codes(self, count: int) -> Tensor:
        """Return the position codes [count,D] of the first slots."""
        codes: Tensor = self.target_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes

    def hidden(self, target: Tensor, memories: list[Memory], earlier: Tensor | None, dropped: Tensor | None = None) -> Tensor:
        """Return teacher-forced states [B,T,D] that predict targets [B,T].

        `earlier` [B,T] are the numbers of slots before each that it attends to (see `models.lattice.markov`), and `dropped` [B,T]
        is True at slots that carry BOS in place of a token; None stands for no slot.
        """
        carried = F.pad(target[:, :-1], (1, 0), value=BOS)
        if dropped is not None:
            carried = carried.masked_fill(dropped, BOS)
        inputs = self.dropout(embed(carried, self.target_embedding) + self.position_codes(target.size(1)))
        if earlier is None:
            return self.scored(inputs, memories)
        return self.scored(
            inputs, memories, lambda attention, x: attend_segments(attention, x, earlier, self.config.segment_length)
        )

    def scored(self, x: Tensor, memories: list[Memory], attend: Attend = attend_alone) -> Tensor:
        """Return the states [B,R,D] of scorer inputs [B,R,D]. By default every row attends only to itself."""
        for layer, memory in zip(self.scorer, memories, strict=True):
            x = apply_layer(layer, x, memory, attend)
        output: Tensor = self.decoder.norm(x)
        return output

    @property
    def scorer(self) -> list[DecoderLayer]:
        """The layers of the scorer."""
        return [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]


def apply_layer(layer: DecoderLayer, x: Tensor, memory: Memory, attend: Attend = attend_alone) -> Tensor:
    """Apply one layer to x [B,R,D], with self-attention by `attend`."""
    x = layer.attention_residual(x, lambda y: attend(layer.attention, y))
    return after_self_attention(layer, x, memory)


def after_self_attention(layer: DecoderLayer, x: Tensor, memory: Memory) -> Tensor:
    """Apply the blocks of a layer that follow self-attention to x [B,R,D]."""
    x = layer.cross_attention_residual(x, lambda y: layer.cross_attention(y, memory))
    output: Tensor = layer.feed_forward_residual(x, layer.feed_forward)
    return output


def build(config: LatticeModelConfig, sizes: Sizes) -> LatticeModel:
    """Return a newly initialised network. Raises ValueError for sizes that do not fit each other."""
    return LatticeModel(config, sizes)


def fits(config: LatticeModelConfig, source_length: int, target_length: int) -> bool:
    """Return whether each side, with its EOS, has at most `max_positions` tokens."""
    return max(source_length, target_length) < config.max_positions
