"""An autoregressive drafter: one layer on top of the verifier, which reads the states that the verifier writes from (EAGLE, Li et
al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.aggressive.config import AggressiveConfig
from models.aggressive.words import CommonWords
from models.common.layers.attention import Memory
from models.common.layers.backbone import Backbone, layer_shape
from models.common.layers.dropout import Dropout
from models.common.layers.embeddings import Positions, embed
from models.common.layers.initialisation import initialise
from models.common.layers.linear import Linear
from models.common.layers.stacks import Decoder
from models.family import Sizes


class HeadSource(NamedTuple):
    """What is read of a batch of sources."""

    verifier: list[Memory]
    """By each layer of the verifier's decoder."""
    head: list[Memory]
    """By the drafting layer."""


class DraftHead(Backbone):
    """The verifier's network, which stays as it is, and a layer that writes from its states.

    Slot t predicts token t, as the verifier's does. It carries token t - 1 and a projection of the state that token was written
    from: the verifier's where that is known, else what this network had there.
    """

    def __init__(self, config: AggressiveConfig, sizes: Sizes) -> None:
        """Raises ValueError when the width cannot be split into heads and into sine and cosine halves."""
        super().__init__(config, sizes)
        self.config = config
        self.target_positions = Positions(config.positions, config.max_positions, config.width)
        self.features = Linear(config.width, config.width, bias=False)
        self.head_dropout = Dropout(config.dropout)
        self.head = Decoder(1, layer_shape(config))
        self.words = CommonWords(sizes.target)
        initialise(self)
        nn.init.zeros_(self.features.weight)
        lent = self.lent()
        for name, weight in self.named_parameters():
            weight.requires_grad_(name not in lent)

    def train(self, mode: bool = True) -> DraftHead:
        """The verifier reads and writes as it does at work: without dropout."""
        super().train(mode)
        for part in (self.encoder, self.decoder, self.dropout):
            part.eval()
        return self

    def read(self, source: Tensor, source_lengths: Tensor) -> HeadSource:
        """Sources [B,S] with EOS."""
        states, mask = self.encoded(source, source_lengths)
        return HeadSource(self.decoder.memories(states, mask), self.head.memories(states, mask))

    def verifier_states(self, tokens: Tensor, source: HeadSource) -> Tensor:
        """States [B,T,D] that the verifier writes tokens [B,T] from."""
        carried = F.pad(embed(tokens[:, :-1], self.target_embedding), (0, 0, 1, 0))
        states: Tensor = self.decoder(carried + self.slot_codes(tokens.size(1)), source.verifier, causal=True)
        return states

    def states(self, tokens: Tensor, written_from: Tensor, memories: list[Memory]) -> Tensor:
        """States [B,T,D] of the first T slots, which carry tokens [B,T] and what they were `written_from` [B,T,D], each one slot
        on; the last of either is not read."""
        carried = embed(tokens[:, :-1], self.target_embedding) + self.features(written_from[:, :-1])
        x = self.head_dropout(F.pad(carried, (0, 0, 1, 0)) + self.slot_codes(tokens.size(1)))
        states: Tensor = self.head(x, memories, causal=True)
        return states

    def lent(self) -> list[str]:
        """Tensors that are the verifier's."""
        return [name for name in self.state_dict() if not name.startswith(("features.", "head.", "words."))]

    def begins_as(self) -> dict[str, str]:
        """The layer, and the norm behind it, begin as the verifier's last."""
        last = f"decoder.layers.{len(self.decoder.layers) - 1}."
        names = {name: name.replace("head.layers.0.", last) for name in self.state_dict() if name.startswith("head.layers.")}
        return names | {name: name.replace("head.", "decoder.") for name in self.state_dict() if name.startswith("head.norm.")}

    def slot_codes(self, count: int) -> Tensor:
        """[count,D]"""
        codes: Tensor = self.target_positions(torch.arange(count, device=self.target_embedding.weight.device))
        return codes
